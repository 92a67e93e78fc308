"""Encoders: embedded tokens (and phrases) to token states."""
