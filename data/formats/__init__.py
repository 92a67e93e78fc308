"""File formats and record types: Arrow schemas and shards, bracketed trees, CoNLL-U, joint trees."""
