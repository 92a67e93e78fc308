"""Manifests of corpora and the download of their files: mirrors, archives, digests, files that users supply."""
