"""What the relative paths of a config start from, and the files that it names."""

from __future__ import annotations

import os
import stat
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.config.redaction import public, told
from samplerkit.errors import ConfigError, DatasetError
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import is_remote, shown

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
        raise ConfigError(error.place, error.problem, hint=error.hint) from None


def text_and_folder(source: str | os.PathLike[str]) -> tuple[str, str, Folder]:
    """Reads a config of this machine, or at a URL.

    Returns:
        The text, what the file is called, and the folder from which its relative paths start.

    Raises:
        ConfigError: no path, or it cannot be read, or is no UTF-8 text.
    """
    if not isinstance(source, str | os.PathLike) or isinstance(os.fspath(source), bytes):
        raise ConfigError("config", "must be a path or a mapping", public("config", source))
    if isinstance(source, str) and ("\n" in source or (": " in source and not Path(source).exists())):
        raise ConfigError("config", "is text and no path", hint="text goes to Config.from_yaml")
    if isinstance(source, str) and is_remote(source):
        folder: Folder = folder_of(source)
        name, data = source, fetched(source)
        if data is None:
            raise ConfigError("config", "there is no such file, or it may not be read", shown(name))
    else:
        path = Path(source)
        name, folder, data = str(path), path.parent, _local(path)
    try:
        return data.decode("utf-8-sig"), name, folder
    except UnicodeDecodeError:
        raise ConfigError("config", "is no UTF-8 text", shown(name)) from None


def _local(path: Path) -> bytes:
    data, is_folder = None, False
    try:
        mode = path.stat().st_mode  # `is_file` of Python 3.14 calls what cannot be looked at absent
        is_folder = stat.S_ISDIR(mode)
        data = path.read_bytes() if stat.S_ISREG(mode) else None
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError("config", f"cannot be read ({reason})"[:120], str(path)) from None
    if is_folder:
        raise ConfigError("config", "is a folder", str(path), hint="name the file")
    if data is None:
        raise ConfigError("config", "there is no such file", str(path))
    return data


def array_at(path: str) -> np.ndarray[Any, Any]:
    """Reads an array from a `.npy` file; a pickled one is refused.

    Args:
        path: or a URL; it ends in `.npy`.

    Raises:
        ConfigError: there is no such file, or it holds no plain array.
    """
    if not shown(path).endswith(".npy"):
        raise ConfigError("array", "must be a list or the path of a .npy file")
    try:
        file = _opened(path)
        loaded = None if file is None else np.load(file, allow_pickle=False)
    except ConfigError:
        raise
    except (OSError, ValueError, EOFError, SyntaxError, MemoryError) as error:
        words = (isinstance(error, OSError) and error.strerror) or str(error)
        problem = f"cannot be read as a .npy file ({' '.join(words.partition('. ')[0].split())[:80]})"
        raise ConfigError("array", problem, hint="save it with numpy.save, without objects") from None
    if file is None:
        hint = f"looked for {_end_of(path)}" if told(path) else ""
        raise ConfigError("array", "there is no such file", hint=hint)
    if not isinstance(loaded, np.ndarray):
        raise ConfigError("array", "is an archive of arrays", hint="save one array with numpy.save")
    return loaded


def _opened(path: str) -> Path | BytesIO | None:
    """Gives what numpy reads of a path or a URL; None if there is no such file."""
    if not is_remote(path):
        return Path(path) if Path(path).is_file() else None
    data = fetched(path)
    return None if data is None else BytesIO(data)


def _end_of(path: str) -> str:
    text = shown(path)
    return text if len(text) <= 100 else f"...{text[-97:]}"
