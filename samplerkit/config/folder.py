"""What the relative paths of a config start from, and the files that it names."""

from __future__ import annotations

from pathlib import Path

from samplerkit.errors import ConfigError, DatasetError
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import shown

Folder = Path | str
"""A folder of this machine, or the URL of one."""

MOST_BYTES = 1 << 30
"""A larger file at a URL is no part of a config."""


def folder_of(url: str) -> str:
    """Gives the URL of the folder in which a file lies, without the query.

    Example:
        >>> folder_of("https://host/run/train.yaml?key=1")
        'https://host/run'
    """
    return url.partition("?")[0].partition("#")[0].rpartition("/")[0]


def joined(folder: Folder, path: str) -> str:
    """Gives what a path in a config means: a relative one starts from the folder, a URL stays as it is.

    Example:
        >>> joined(Path("/run"), "data/0.npz"), joined("s3://bucket/run", "data/0.npz")
        ('/run/data/0.npz', 's3://bucket/run/data/0.npz')
        >>> joined(Path("/run"), "s3://bucket/0.npz"), joined("s3://bucket/run", "/data/0.npz")
        ('s3://bucket/0.npz', '/data/0.npz')
    """
    if "://" in path:
        return path
    if isinstance(folder, Path):
        return str(folder / path)
    return path if Path(path).is_absolute() else f"{folder}/{path}"


def fetched(url: str) -> bytes | None:
    """Reads a small file at a URL, with the credentials of the environment; None if there is none.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with RemoteStorage(RemoteOptions()) as storage:
            return storage.read_small(url, MOST_BYTES)
    except DatasetError as error:
        raise ConfigError(error.place, error.problem, mend=error.mend) from None


def text_at(url: str) -> str:
    """Reads a config at a URL.

    Raises:
        ConfigError: it cannot be read, or is no UTF-8 text.
    """
    data = fetched(url)
    if data is None:
        raise ConfigError("config", "there is no such file, or it may not be read", shown(url))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError("config", "is no UTF-8 text", shown(url)) from None


def text_of(path: Path) -> str:
    """Reads a config of this machine.

    Raises:
        ConfigError: it cannot be read, or is no UTF-8 text.
    """
    try:
        if path.is_dir():
            raise ConfigError("config", "is a folder", str(path), mend="name the file")
        if not path.is_file():
            raise ConfigError("config", "there is no such file", str(path))
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError("config", "is no UTF-8 text", str(path)) from None
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError("config", f"cannot be read ({reason})"[:120], str(path)) from None
