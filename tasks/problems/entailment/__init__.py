"""Natural language inference by sentence vectors, and what these are worth on other tasks (SentEval)."""
