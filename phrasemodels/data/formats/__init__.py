"""File formats and record types: Arrow schemas and shards, text, CoNLL-U, bracketed and joint trees."""
