"""Constituency and dependency parsing."""
