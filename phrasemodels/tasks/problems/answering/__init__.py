"""Question answering over stories (bAbI)."""
