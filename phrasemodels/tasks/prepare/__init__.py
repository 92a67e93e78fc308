"""Steps from raw corpora to numbers: records, tokens, vocabularies, byte pairs, phrases and levels."""
