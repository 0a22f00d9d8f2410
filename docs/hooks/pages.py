"""Lets the pages lie beside `mkdocs.yml`, where the README finds them, and ranks them in searches."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from samplerkit.inspect.pictures.explorer import page_of

_BOOSTS = {
    "reference/": 0.3,
    "error-messages.md": 3.0,
    "migration.md": 2.0,
    "shuffle-modes.md": 2.0,
}
"""What a search ranks lower or higher, by the beginning of the path. The reference repeats all words."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets the folder of the pages: in the file itself, MkDocs refuses the folder in which the file lies."""
    config.docs_dir = str(Path(config.config_file_path).parent)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the page in which orders can be changed; the package makes it, so it is kept once."""
    files.append(File.generated(config, "explorer.html", content=page_of()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Tells the search how high a page ranks."""
    for beginning, boost in _BOOSTS.items():
        if page.file.src_uri.startswith(beginning):
            page.meta["search"] = {"boost": boost}
    return markdown
