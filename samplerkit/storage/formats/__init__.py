"""Datasets for common data formats, each over the chunks or the keys of its format."""
