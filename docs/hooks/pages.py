"""Lets the pages lie beside `mkdocs.yml`, where the README and readers of the repository find them."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets the folder of the pages: in the file itself, MkDocs refuses the folder in which the file lies."""
    config.docs_dir = str(Path(config.config_file_path).parent)
    return config
