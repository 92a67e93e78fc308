"""The experiments: one value for each row of each result table, and the catalogue of all of them."""
