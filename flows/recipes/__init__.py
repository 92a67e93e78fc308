"""How the steps of an experiment follow one another: one file a problem."""
