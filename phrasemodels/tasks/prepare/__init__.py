"""Steps that turn raw corpora into numbers: corpora as records, tokens, vocabularies, byte pairs, phrases, levels."""
