"""Formats that people have their data in: a dataset each, over the chunks or the keys of the format."""
