"""Steps that parse text: Stanza, our own parser, and the training of Stanza's models."""
