"""Corpora as Arrow tables: how they are downloaded and read, and the store that keeps every result."""
