"""Natural language inference by sentence vectors, and their transfer to other tasks (SentEval)."""
