"""Steps that parse text: their back ends, Stanza's models and their training."""
