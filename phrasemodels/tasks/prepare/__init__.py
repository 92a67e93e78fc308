"""Steps from raw corpora to numbers: corpora as records, tokens, vocabularies, byte pairs, phrases, levels."""
