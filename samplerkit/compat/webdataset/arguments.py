"""webdataset's arguments: each is taken at its word or refused, where ignoring it would change samples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from samplerkit.compat.webdataset.commands import PIPE, Piped, parsed
from samplerkit.compat.webdataset.handlers import Handler
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError, NotSupportedError
from samplerkit.order import arguments
from samplerkit.storage.names import expand_braces
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.steps import checked_function

EqualSteps = Literal["pad", "drop"]
"""How all ranks get the same number of samples: the first ones repeated, or the last ones left out."""

OURS: Final = "ours"
"""Stands for an argument that was left out."""

NODE_SPLITTERS = frozenset({"split_by_node", "single_node_only"})
WORKER_SPLITTERS = frozenset({"split_by_worker"})

METHODS: Mapping[str, str] = {
    "associate": "use map",
    "rename_keys": "use rename",
    "extract_keys": "use to_tuple",
    "xdecode": "use decode",
    "log_keys": "use map",
    "mcached": "the files stay in the page cache",
    "lmdb_cached": "the files stay in the page cache",
    "append": "use compose, which gives a new dataset",
    "stage": "the stages are values of their own",
}
"""Methods of webdataset's that are not here, and what to do in place of them."""


REFUSED: Mapping[str, str] = {
    "mode": "leave it out, or say 'resampled'",
    "select_files": "use select, or to_tuple, which reads the fields that it names: samples are indexed once",
    "rename_files": "use rename for fields, or map for keys: samples are indexed once",
}
"""Arguments of webdataset's that are not here, likewise."""


class MissingMethodError(NotSupportedError, AttributeError):
    """A method of webdataset's that is not here; `hasattr` says so, too."""


def shards(
    urls: Any,
    handler: Handler | None,
    cache_dir: Any,
    cache_size: Any,
    *,
    allow_commands: bool,
    command_timeout: float,
    options: dict[str, Any],
) -> TarDataset | Piped | DatasetError:
    """Takes the arguments that say what is read: shards for any place, or those that commands write.

    A shard that is missing is an error when they are read, which is given in their place.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        TypeError: one is none of a `TarDataset`'s.
        ArgumentValueError: a command is not allowed, or a value cannot be meant.
        NotSupportedError: `urls` is a specification of webdataset's.
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
    if not arguments.boolean("allow_commands", allow_commands):
        raise ArgumentValueError(
            "urls",
            "names a command, and commands are not run unless you allow it",
            # The first word only: the others may be private.
            " ".join([*commands[0].split(maxsplit=1)[:1], "..."]),
            hint="say allow_commands=True if nobody else can write these urls, or give the URL itself",
        )
    if len(commands) < len(names):
        hint = "make two datasets"
        raise ArgumentValueError(
            "urls", "mixes commands with shards that can be read at any place", hint=hint
        )
    if options:
        problem = "do not go with commands, whose shards have no index"
        raise ArgumentTypeError("options", problem, sorted(options))
    timeout = arguments.seconds("command_timeout", command_timeout, may_be_zero=False)
    expanded = [url for command in commands for url in expand_braces(command)]
    return Piped(tuple(map(parsed, expanded)), timeout, handler)


def handler_of(value: Any) -> Handler | None:
    """Takes a handler; None for raising.

    Raises:
        ArgumentTypeError: no function.
    """
    if value is None or _name(value) == "reraise_exception":
        return None
    return checked_function("handler", value)


def reads_everything(nodesplitter: Any, workersplitter: Any, *, resampled: bool) -> bool:
    """Takes webdataset's splitters, and returns whether every rank is to read everything.

    Raises:
        NotSupportedError: a splitter of the user's own, or no splitter for workers.
    """
    for name, value, known in (
        ("nodesplitter", nodesplitter, NODE_SPLITTERS),
        ("workersplitter", workersplitter, WORKER_SPLITTERS),
    ):
        if value is not OURS and value is not None and value is not False and _name(value) not in known:
            hint = (
                "leave it out: samples are split by rank and worker; or say world=World(num_shards, shard_id)"
            )
            raise NotSupportedError(name, "of your own is not known here", value, hint=hint)
    if workersplitter in {None, False} and not resampled:
        problem = "None would read each sample once in every worker"
        raise NotSupportedError("workersplitter", problem, hint="leave it out")
    # Where shards are resampled, webdataset's ranks differ by their randomness; ours, by their part.
    return nodesplitter is None and not resampled


def shard_shuffle(value: Any) -> bool:
    """Takes `shardshuffle`: any number of shards means all of them."""
    if value is None or isinstance(value, bool):
        return bool(value)
    return arguments.integer("shardshuffle", value) > 0


def refuse(**given: Any) -> None:
    """Refuses arguments that are not here.

    Raises:
        NotSupportedError: one of them is given.
    """
    for name, value in given.items():
        if value is not None:
            raise NotSupportedError(name, "is not supported", value, hint=REFUSED[name])


def _names(urls: Any) -> list[Any]:
    if isinstance(urls, Mapping) or (isinstance(urls, str) and urls.endswith((".yaml", ".yml", ".json"))):
        problem = "is a specification of webdataset's, which is not supported"
        hint = "give the shards; samplerkit.MixtureSampler mixes datasets by weights"
        raise NotSupportedError("urls", problem, urls, hint=hint)
    if isinstance(urls, str):
        return urls.split("::")
    if isinstance(urls, os.PathLike) or not isinstance(urls, Iterable) or isinstance(urls, bytes):
        return [urls]
    return list(urls)


def _add_cache(options: dict[str, Any], cache_dir: Any, cache_size: Any) -> None:
    """Takes the folder for remote shards; local ones need none, here as in webdataset."""
    size = arguments.integer("cache_size", cache_size)
    if cache_dir is None:
        return
    remote = RemoteOptions.of(options.get("remote"))
    said: dict[str, Any] = {"cache": cache_dir} | ({"max_cache_bytes": size} if size > 0 else {})
    for place, name in zip(("cache_dir", "cache_size"), said, strict=False):
        if getattr(remote, name) is not None:
            problem, hint = f"is said twice: by {name} of remote, too", "say it in one of them"
            raise ArgumentTypeError(place, problem, hint=hint)
    options["remote"] = replace(remote, **said)
    # There whole shards are kept, as webdataset does.
    options.setdefault("fetch", "shards")


def _name(function: Any) -> str:
    """The name of a function; webdataset wraps some of its own."""
    return str(getattr(function, "__name__", ""))
