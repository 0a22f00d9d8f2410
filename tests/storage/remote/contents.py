"""The contents of servers, of local files and of a cache."""

import random
from contextlib import suppress
from pathlib import Path

from samplerkit.storage.remote.cache_entries import FOLDER_LOCK, exclusive_lock
from samplerkit.storage.remote.storage import LocalFile
from samplerkit.storage.threads import Stop

DATA = random.Random(7).randbytes(3_000_000)


def content(local: LocalFile) -> bytes:
    """Reads a fetched file, and closes it."""
    with local:
        return Path(local.path).read_bytes()


def bytes_held(folder: Path) -> int:
    """Counts the bytes of a cache while it is locked; a file that is renamed meanwhile counts once."""
    if not (folder / FOLDER_LOCK).exists():
        return 0
    sizes: dict[str, int] = {}
    with exclusive_lock(folder / FOLDER_LOCK, Stop()):
        for path in [*folder.glob("*.part"), *folder.glob("*.file")]:
            with suppress(FileNotFoundError):
                sizes[path.stem] = path.stat().st_size
    return sum(sizes.values())


def cached_sizes(folder: Path) -> list[int]:
    """The sizes of the files in a cache."""
    return sorted(path.stat().st_size for path in folder.glob("samplerkit-*.file"))


def leftovers(folder: Path) -> list[str]:
    """The names in a cache other than complete files, each with its lock."""
    files = {path.stem for path in folder.glob("samplerkit-*.file")}
    names = {path.name for path in folder.iterdir()} - {"samplerkit-remote.lock"}
    return sorted(names - {f"{stem}.{kind}" for stem in files for kind in ("file", "lock")})
