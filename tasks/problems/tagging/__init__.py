"""Part-of-speech tagging."""
