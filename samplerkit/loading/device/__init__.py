"""Batches on a device before the loop asks for them, and orders that are computed there."""
