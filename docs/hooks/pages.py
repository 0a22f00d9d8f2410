"""Builds the site from pages in the folder of `mkdocs.yml`, and sets their rank in searches."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from samplerkit.inspect.pictures.picture import page_of

_BOOSTS = {
    "reference/": 0.3,
    "error-messages.md": 3.0,
    "migration.md": 2.0,
    "shuffle-modes.md": 2.0,
}
"""The rank in searches, by the start of the path: lower for the reference, which repeats all words."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets the folder of the pages; in `mkdocs.yml`, MkDocs refuses the folder that contains that file."""
    config.docs_dir = str(Path(config.config_file_path).parent)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the interactive page of orders, which the package makes."""
    files.append(File.generated(config, "explorer.html", content=page_of()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Sets the rank of a page in searches."""
    for beginning, boost in _BOOSTS.items():
        if page.file.src_uri.startswith(beginning):
            page.meta["search"] = {"boost": boost}
    return markdown
