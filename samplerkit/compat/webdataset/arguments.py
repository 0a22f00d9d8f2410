"""Checks webdataset's arguments: they are supported, or refused if ignoring them would change samples."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from samplerkit.compat.webdataset.commands import PIPE, Piped, parse_command
from samplerkit.compat.webdataset.handlers import Handler
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError, NotSupportedError
from samplerkit.order import arguments
from samplerkit.storage.names import expand_braces
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tar.dataset import TarDataset

EqualSteps = Literal["pad", "drop"]
"""How all ranks read the same number of samples: repeat the first ones, or drop the last ones."""

SPLITTERS = frozenset({"split_by_node", "single_node_only", "split_by_worker"})

REFUSED: Mapping[str, str] = {
    "mode": "leave it out, or use 'resampled'",
    "select_files": "use select, or to_tuple, which reads the fields that it names: samples are indexed once",
    "rename_files": "use rename for fields, or map for keys: samples are indexed once",
    "rng": "use seed=: an order depends only on seed and epoch",
    "post": "give the functions as arguments: the first result other than None is used",
    "compress": "random access needs an uncompressed tar; compress a field instead, as in txt.gz",
    "keep_meta": "give fields names without an underscore at the beginning",
    "opener": "give a path, and take the shard from there in post=",
}
"""webdataset's arguments that are not supported, and what to use instead."""


def shards(
    urls: Any,
    handler: Handler | None,
    cache_dir: Any,
    cache_size: Any,
    options: dict[str, Any],
    command_timeout: float | None,
) -> TarDataset | Piped | DatasetError:
    """Returns the shards that the arguments name: with random access, or written by commands.

    If a shard is missing, the error is returned instead, to be raised when shards are read. Commands are not
    allowed if `command_timeout` is None.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        TypeError: an argument is not one of `TarDataset`.
        ArgumentValueError: a command is not allowed, or a value is not valid.
    """
    if isinstance(urls, TarDataset):
        if options or cache_dir is not None:
            raise ArgumentTypeError("urls", "is a TarDataset, which has its options already", sorted(options))
        return urls
    names = _names(urls)
    commands = [name for name in names if isinstance(name, str) and name.startswith(PIPE)]
    if not commands:
        _add_cache(options, cache_dir, cache_size)
        if handler is not None:
            options.setdefault("on_error", "skip")
        try:
            return TarDataset(names, **options)
        except DatasetError as error:
            return error
    if command_timeout is None:
        # The command is not shown: it may hold secrets.
        hint = "use allow_commands=True if nobody else can write these urls, or give the URL itself"
        raise ArgumentValueError("urls", "names a command, and commands are not allowed", PIPE, hint=hint)
    if len(commands) < len(names):
        raise ArgumentValueError("urls", "mixes commands with shards that have random access")
    if options:
        problem = "are not supported with commands, whose shards have no index"
        raise ArgumentTypeError("options", problem, sorted(options))
    timeout = arguments.seconds("command_timeout", command_timeout, may_be_zero=False)
    expanded = [url for command in commands for url in expand_braces(command)]
    return Piped(tuple(map(parse_command, expanded)), timeout)


def handler_of(value: Any) -> Handler | None:
    """Checks a handler; None to raise errors.

    Raises:
        ArgumentTypeError: `value` is not a function.
    """
    if value is None or _name(value) == "reraise_exception":
        return None
    return arguments.function("handler", value)


def reads_everything(nodesplitter: Any, workersplitter: Any, *, resampled: bool) -> bool:
    """Checks webdataset's splitters, and returns whether every rank reads all samples.

    Raises:
        NotSupportedError: a splitter is the user's own, or `workersplitter` is None.
    """
    for name, value in (("nodesplitter", nodesplitter), ("workersplitter", workersplitter)):
        if value and _name(value) not in SPLITTERS:
            hint = "leave it out: samples are split by rank and worker; or use world=World(num_shards, rank)"
            raise NotSupportedError(name, "must be one of webdataset's own functions", value, hint=hint)
    if not workersplitter and not resampled:
        raise NotSupportedError("workersplitter", "None repeats samples in each worker", hint="leave it out")
    # If shards are resampled, ranks of webdataset differ by their random draws, and ranks here by their part.
    return nodesplitter is None and not resampled


def refuse(**given: Any) -> None:
    """Refuses arguments that are not supported.

    Raises:
        NotSupportedError: one of them is given, and is neither None nor False.
    """
    for name, value in given.items():
        if value is not None and value is not False:
            raise NotSupportedError(name, "is not supported", value, hint=REFUSED[name])


def _names(urls: Any) -> list[Any]:
    if isinstance(urls, str):
        return urls.split("::")
    if isinstance(urls, os.PathLike | bytes | Mapping) or not isinstance(urls, Iterable):
        return [urls]
    return list(urls)


def _add_cache(options: dict[str, Any], cache_dir: Any, cache_size: Any) -> None:
    """Adds the cache folder for remote shards to the options; as in webdataset, local shards need none."""
    size = arguments.integer("cache_size", cache_size)
    if cache_dir is None:
        return
    remote = RemoteOptions.of(options.get("remote"))
    cache_options: dict[str, Any] = {"cache": cache_dir} | ({"max_cache_bytes": size} if size > 0 else {})
    options["remote"] = replace(remote, **cache_options)
    # The cache has whole shards, as in webdataset.
    options.setdefault("fetch", "shards")


def _name(function: Any) -> str:
    """Returns the name of a function; webdataset wraps some of its functions."""
    return str(getattr(function, "__name__", ""))
