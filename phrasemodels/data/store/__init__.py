"""The store: artifacts under content-addressed keys, the fingerprint of source code, leases, shared storage, garbage collection."""
