"""Readers: one file a family of formats, each yields one of the record schemas."""
