"""Metrics, a module each; tests of significance, and verdicts on published numbers."""
