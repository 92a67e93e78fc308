"""Downloads: manifests of corpora and parsers, mirrors and URLs, archives, files of the user."""
