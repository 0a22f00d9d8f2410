"""What is in local files and in a cache."""

from __future__ import annotations

from pathlib import Path

from samplerkit.storage.remote.storage import LocalFile


def content(local: LocalFile) -> bytes:
    """Reads a file that was fetched, and lets go of it."""
    with local:
        return Path(local.path).read_bytes()


def kept(folder: Path) -> list[int]:
    """The sizes of the files in a cache."""
    return sorted(path.stat().st_size for path in folder.glob("samplerkit-*.file"))


def leftovers(folder: Path) -> list[str]:
    """What is in a cache besides whole files, each with its lock."""
    files = {path.stem for path in folder.glob("samplerkit-*.file")}
    names = {path.name for path in folder.iterdir()} - {"samplerkit-remote.lock"}
    return sorted(names - {f"{stem}.{kind}" for stem in files for kind in ("file", "lock")})
