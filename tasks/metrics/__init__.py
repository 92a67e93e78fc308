"""Metrics, one module each, the statistics that compare systems, and the verdict on a published number."""
