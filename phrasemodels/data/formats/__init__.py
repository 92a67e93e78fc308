"""File formats and record types: Arrow schemas and shards, lines of text, bracketed trees, CoNLL-U, joint trees."""
