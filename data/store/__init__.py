"""The store: content-addressed artifacts, the fingerprint of the code that made them, leases, shared storage, garbage collection."""
