"""Corpora to Arrow tables: manifests, download, readers, and the store that keeps what is made."""
