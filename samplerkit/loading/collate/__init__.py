"""Collate functions for samples of different lengths."""
