"""Semantic parsing: from questions to logical forms."""
