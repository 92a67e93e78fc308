"""Readers of corpora, one module for each family of formats. Each returns a record type of data/formats/shards.py."""
