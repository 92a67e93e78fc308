"""Natural language inference by decomposable attention."""
