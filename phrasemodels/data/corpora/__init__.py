"""Readers of corpora, one module for each family of formats; each returns a record type of data/formats/shards.py."""
