"""Downloads: manifests of corpora and parsers, fetching from mirrors and URLs, archives, files that the user supplies."""
