"""Whole models: token ids to scores and predictions."""
