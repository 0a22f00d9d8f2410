"""Loaders and trainers that others write, on the real packages, with samplerkit in them."""
