"""Corpora as Arrow tables: how they are downloaded, read and generated, and the store that keeps every result."""
