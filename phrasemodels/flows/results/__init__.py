"""Results: artifacts of the store, kept results, lineage, SQL, verdicts."""
