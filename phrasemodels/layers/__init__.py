"""Attention, phrases and the blocks they are put together from."""
