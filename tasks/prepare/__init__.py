"""Steps from raw corpora to numbers: tokens, vocabularies, phrases."""
