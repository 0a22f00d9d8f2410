"""Reads configs: files and URLs, YAML text and mappings, which become plain data."""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import yaml
from yaml.nodes import MappingNode, ScalarNode

from samplerkit.config.error_messages import LONGEST_PROBLEM, below, public, showable
from samplerkit.errors import ArgumentValueError, ConfigError, DatasetError
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import is_remote, shown

Folder = Path | str
"""A local folder, or the URL of a folder."""


def join_path(folder: Folder, path: str) -> str:
    """Joins a relative path to a folder; URLs and absolute paths are unchanged, and `~` is the home folder.

    Example:
        >>> join_path(Path("/run"), "data/0.npz"), join_path("s3://bucket/run", "data/0.npz")
        ('/run/data/0.npz', 's3://bucket/run/data/0.npz')
        >>> join_path(Path("/run"), "s3://bucket/0.npz"), join_path("s3://bucket/run", "/data/0.npz")
        ('s3://bucket/0.npz', '/data/0.npz')
    """
    if "://" in path:
        return path
    if path.startswith("~/"):  # no shell has expanded it
        path = str(Path(path).expanduser())
    if isinstance(folder, Path):
        return str(folder / path)
    return path if Path(path).is_absolute() else f"{folder}/{path}"


def fetch(url: str) -> bytes | None:
    """Reads a small file at a URL, with the credentials of the environment.

    Returns:
        The content; None if there is no such file.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        with RemoteStorage(RemoteOptions()) as storage:
            return storage.read_small(url)
    except DatasetError as error:
        raise ConfigError(error.place, error.problem, hint=error.hint) from None


def text_and_folder(source: str | os.PathLike[str]) -> tuple[str, str, Folder]:
    """Reads the text of a config, from a local file or a URL.

    Returns:
        The text, the name of the file, and the folder from which its relative paths start.

    Raises:
        ConfigError: `source` is not a path, or the file cannot be read, or is not UTF-8 text.
    """
    if not isinstance(source, str | os.PathLike) or isinstance(os.fspath(source), bytes):
        raise ConfigError("config", "must be a path or a mapping", public("config", source))
    if isinstance(source, str) and ("\n" in source or (": " in source and not Path(source).exists())):
        raise ConfigError("config", "is text, not a path", hint="text goes to Config.from_yaml")
    if isinstance(source, str) and is_remote(source):
        # The URL of the folder, without the query.
        folder: Folder = source.partition("?")[0].partition("#")[0].rpartition("/")[0]
        name, data = source, fetch(source)
        if data is None:
            raise ConfigError("config", "there is no such file, or it may not be read", shown(name))
    else:
        path = Path(source)
        name, folder, data = str(path), path.parent, _read_local(path)
    try:
        return data.decode("utf-8-sig"), name, folder
    except UnicodeDecodeError:
        raise ConfigError("config", "is not UTF-8 text", shown(name)) from None


def _read_local(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode  # `is_file` of Python 3.14 is False for a file that it may not access
        if stat.S_ISREG(mode):
            return path.read_bytes()
        problem = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"
    except (FileNotFoundError, NotADirectoryError):
        problem = "there is no such file"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problem = f"cannot be read ({reason})"[:120]
    hint = "name the file" if problem == "is a folder" else ""
    raise ConfigError("config", problem, str(path), hint=hint)


def array_at(path: str, place: str = "array") -> np.ndarray[Any, Any]:
    """Reads an array from a `.npy` file; pickled arrays are refused.

    Args:
        path: a path or a URL that ends in `.npy`.
        place: the place that errors show.

    Raises:
        ArgumentValueError: there is no such file, or it does not hold a plain array.
    """
    if not shown(path).endswith(".npy"):
        raise ArgumentValueError(place, "must be a list or the path of a .npy file")
    try:
        file = _open_file(path)
        loaded: Any = None if file is None else np.load(file, allow_pickle=False)
    except ConfigError as error:
        raise ArgumentValueError(place, error.problem, hint=error.hint) from None
    except Exception as error:  # numpy raises many kinds for a damaged header, such as TokenError
        message = (isinstance(error, OSError) and error.strerror) or str(error)
        problem = f"cannot be read as a .npy file ({' '.join(message.partition('. ')[0].split())[:80]})"
        raise ArgumentValueError(place, problem, hint="save it with numpy.save, without objects") from None
    if file is None:
        hint = f"looked for {shown(path)}" if showable(path) else ""
        raise ArgumentValueError(place, "there is no such file", hint=hint)
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise ArgumentValueError(place, "is an archive of arrays", hint="save one array with numpy.save")
    return loaded


def _open_file(path: str) -> Path | BytesIO | None:
    """Returns a path or an open file that numpy can read; None if there is no such file."""
    if not is_remote(path):
        return Path(path) if Path(path).is_file() else None
    data = fetch(path)
    return None if data is None else BytesIO(data)


DEEPEST = 256
"""The deepest nesting of a config: enough for a hundred samplers, each with LightningCLI's two levels."""

MAX_REPEATS = 10_000_000
"""The most values that a config may have because the same lists or mappings are in it several times."""

_BYTES_AND_STRINGS = (str, bytes, bytearray, memoryview, Enum, np.generic)
_PLAIN_TYPES = frozenset({int, float, str, bool, type(None), np.ndarray})


def plain(section: Any, place: str = "") -> Any:
    """Copies a mapping, or any other value, as plain data.

    Numpy numbers become Python numbers, enum members their values, paths strings, sequences lists and
    mappings dicts. Numpy arrays are kept.

    Raises:
        ConfigError: a key is not a string; or the data contains itself, is nested too deeply, or becomes huge
            because a few lists refer to one another repeatedly.

    Example:
        >>> plain({"indices": (np.int64(3), 4), "shuffle": {}})
        {'indices': [3, 4], 'shuffle': {}}
    """
    return _Copy().of(section, place)


class _Copy:
    """Copies one tree of mappings and sequences."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._size = 0
        self._repeats = 0
        # Keeps copied objects alive, so that their ids are not reused.
        self._done: dict[int, tuple[Any, Any, int]] = {}

    def of(self, value: Any, place: str) -> Any:
        """Copies one value."""
        if type(value) in _PLAIN_TYPES:
            return value
        if not isinstance(value, Mapping | Sequence) or isinstance(value, _BYTES_AND_STRINGS):
            return _scalar(value)
        if id(value) in self._open:
            raise ConfigError(place, "contains itself", hint="write it out where it is needed again")
        if len(self._open) == DEEPEST:
            raise ConfigError(place[:100], f"is nested more than {DEEPEST} levels deep")
        if id(value) in self._done:
            _, copied, size = self._done[id(value)]
            self._size += size
            self._repeats += size
            if self._repeats > MAX_REPEATS:
                hint = "keep long lists in .npy files"
                raise ConfigError(place, f"repeats more than {MAX_REPEATS} values", hint=hint)
            return copied
        before = self._size
        self._size += 1 + len(value)
        self._open.add(id(value))
        if isinstance(value, Mapping):
            copied = {_key(key, place): self.of(entry, below(place, key)) for key, entry in value.items()}
        else:
            copied = [
                entry if type(entry) in _PLAIN_TYPES else self.of(entry, below(place, number))
                for number, entry in enumerate(value)
            ]
        self._open.remove(id(value))
        self._done[id(value)] = (value, copied, self._size - before)
        return copied


def _scalar(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _key(key: Any, place: str) -> str:
    if not isinstance(key, str):
        problem = "has a key that is not a string"
        raise ConfigError(place or "config", problem, public("", key), hint="quote the key")
    return str(key)


MAX_CHARACTERS = 1 << 20
"""Longer texts are refused. This is about a hundred thousand numbers."""

_MERGE = "tag:yaml.org,2002:merge"
_QUOTED = re.compile(r"'([^']*)'")


def parse(text: str, source: str = "config") -> Any:
    """Reads YAML text, safely and strictly.

    Raises:
        ConfigError: the text has a syntax error, a duplicate key, a tag that is not plain data, an alias
            inside of its own anchor, or a merge key; the error has line and column. Or the text is too long
            to be read within seconds.

    Example:
        >>> parse("sampler: {kind: random, seed: 7}")
        {'sampler': {'kind': 'random', 'seed': 7}}
    """
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(
            source,
            f"has {len(text)} characters, and at most {MAX_CHARACTERS} are read",
            hint="keep long lists in .npy files, and write their paths",
        )
    try:
        loader = _StrictLoader(text)
        loader.source = source
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        problem = " ".join(_without_secrets(f"{error.problem or error.context}").split())[:LONGEST_PROBLEM]
        mark = error.problem_mark or error.context_mark
        raise ConfigError(_at(source, mark), f"is not plain YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
        mark = yaml.Mark(source, error.position, line, column, None, 0)
        raise ConfigError(_at(source, mark), f"is not plain YAML: {error.reason}") from None
    except RecursionError:
        raise ConfigError(source, "is nested too deeply to be read from here") from None


# types-PyYAML types the loader only in part.
class _StrictLoader(yaml.SafeLoader):
    """Refuses ambiguous YAML: duplicate keys, merge keys and cycles."""

    source = ""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, MappingNode):
            self._check_keys(node)
        return super().construct_mapping(node, deep=deep)

    def _check_keys(self, node: MappingNode) -> None:
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if key.tag == _MERGE:
                # They can grow exponentially, as aliases of aliases do, and YAML 1.2 has dropped them.
                self._refuse(key, "merge keys (<<) are not read", hint="write the keys out")
            if not isinstance(key, ScalarNode):
                continue
            if (key.tag, key.value) in lines:
                first = lines[key.tag, key.value]
                self._refuse(key, "a key comes twice", key.value, hint=f"the first one is in line {first}")
            lines[key.tag, key.value] = key.start_mark.line + 1

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError):
            # PyYAML does not catch the exceptions of int(), of date() and of its own tables.
            self._refuse(node, f"cannot be read as {str(node.tag).rpartition(':')[2]}", node.value)

    def _refuse(self, marked: Any, problem: str, *value: Any, hint: str = "") -> NoReturn:
        shown = (public("", one) for one in value)
        raise ConfigError(_at(self.source, marked.start_mark), problem, *shown, hint=hint) from None


def _without_secrets(problem: str) -> str:
    """Hides possible secrets among the names of tags and aliases that PyYAML quotes in its messages."""
    return _QUOTED.sub(lambda match: match[0] if showable(match[1]) else "...", problem)


def _at(source: str, mark: Any) -> str:
    return source if mark is None else f"{source}, line {mark.line + 1}, column {mark.column + 1}"
