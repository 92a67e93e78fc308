"""Metrics, one module each; tests of significance, and verdicts on published numbers."""
