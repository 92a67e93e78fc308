"""Results of the store and kept results, their lineage and verdicts, and their tables in SQL."""
