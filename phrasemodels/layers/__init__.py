"""Layers: attention, attention weights, phrases, pooling, scorers, and checks of configurations."""
