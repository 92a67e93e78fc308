"""Layers, encoders and models that attend to phrases: tensors in, tensors out."""
