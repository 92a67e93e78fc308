"""Readers of corpora, one file for each family of formats; each yields one of the record types of data/formats/schemas.py."""
