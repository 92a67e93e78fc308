"""Counting: numbers that papers print of corpora and models, and that need no training."""
