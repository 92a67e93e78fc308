"""One file a paper: its result tables as lists of experiments."""
