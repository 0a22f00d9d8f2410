"""webdataset's `ShardWriter` and `TarWriter`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from samplerkit.compat.webdataset.arguments import refuse
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, NotSupportedError
from samplerkit.order import arguments
from samplerkit.storage.tar import writer

Encoder = Callable[[Mapping[str, Any]], Mapping[str, Any]]

IGNORED = frozenset({"user", "group", "mode", "mtime", "format"})
"""Arguments that do not change samples: owners and times are the same in all shards."""


class EncodedWriter(writer.TarWriter):
    """Writes samples as webdataset does: encoded, without the fields that begin with an underscore.

    Args:
        shards: the paths of the shards, as for `samplerkit.TarWriter`.
        encoder: webdataset's argument of this name, as for `ShardWriter`.
        post: called with the path of each completed shard; None for nothing.
        options: further arguments of `samplerkit.TarWriter`.
    """

    def __init__(
        self, shards: Any, encoder: Any = True, post: Callable[[str], Any] | None = None, **options: Any
    ) -> None:
        super().__init__(shards, **options)
        self._encoder = _encoder(encoder)
        self._post = None if post is None else arguments.function("post", post)

    def write(self, obj: Mapping[str, Any]) -> None:
        """Writes one sample; see `samplerkit.TarWriter`."""
        if not isinstance(obj, Mapping):
            raise ArgumentTypeError("sample", "must be a dict of names and values", obj)
        encoded = self._encoder(obj)
        super().write({name: encoded[name] for name in encoded if name == "__key__" or name[:1] != "_"})

    next_stream = finish = writer.TarWriter.next_shard

    def _finish(self, shard: Any) -> None:
        super()._finish(shard)
        if self._post is not None:
            self._post(self.paths[-1])


def ShardWriter(  # noqa: N802  # a class in webdataset
    pattern: str,
    maxcount: int = 100_000,
    maxsize: float = 3e9,
    post: Callable[[str], Any] | None = None,
    start_shard: int = 0,
    verbose: int = 1,  # noqa: ARG001  # webdataset's
    opener: Any = None,
    *,
    encoder: Any = True,
    **options: Any,
) -> EncodedWriter:
    """Writes samples into numbered shards: a `samplerkit.TarWriter`, with webdataset's arguments.

    Args:
        pattern: the path of the shards, with a placeholder for their number, `train-%06d.tar`.
        maxcount: the largest number of samples per shard.
        maxsize: the largest number of bytes per shard.
        post: called with the path of each shard when the shard and its index are complete.
        start_shard: the number of the first shard.
        verbose: not needed: nothing is printed.
        opener: refused.
        encoder: True to encode values as `samplerkit.TarWriter` does; False if all values are bytes; a
            function from a sample to a sample of bytes; or functions by extension, where other extensions are
            encoded as for True.
        options: further arguments of `samplerkit.TarWriter`. webdataset's `user`, `group`, `mode`, `mtime`
            and `format` are accepted and have no effect: owners and times are the same in all shards, so the
            same samples give the same bytes.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: the pattern has no place for a number.
        ArgumentRangeError: a limit is not positive.
        NotSupportedError: `compress`, `keep_meta` or `opener` is given; the error has an alternative.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, ShardWriter(f"{folder}/%03d.tar", maxcount=2) as writer:
        ...     for number in range(3):
        ...         writer.write({"__key__": str(number), "txt": "hello"})
        ...     writer.num_samples
        3
    """
    refuse(opener=opener)
    size = arguments.number("maxsize", maxsize, "bytes")
    if math.isnan(size):
        raise ArgumentRangeError("maxsize", "must not be NaN", maxsize)
    most = int(min(size, arguments.LARGEST))  # infinity is no limit
    limits = {"samples_per_shard": maxcount, "bytes_per_shard": most, "start_shard": start_shard}
    return EncodedWriter(pattern, encoder, post, **limits, **_supported(**options))


def TarWriter(  # noqa: N802  # likewise
    fileobj: Any, *, encoder: Any = True, **options: Any
) -> EncodedWriter:
    """Writes samples into one tar: a `samplerkit.TarWriter`, with webdataset's arguments.

    Args:
        fileobj: the path of the tar; open files and commands are not supported.
        encoder: as for `ShardWriter`.
        options: as for `ShardWriter`.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: the path is not that of a single uncompressed tar.
        NotSupportedError: `compress` or `keep_meta` is given; the error has an alternative.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, TarWriter(f"{folder}/a.tar") as writer:
        ...     writer.write({"__key__": "one", "txt": "hello", "cls": 3})
    """
    if isinstance(fileobj, str) and fileobj.startswith("pipe:"):
        raise NotSupportedError("fileobj", "is a command", hint="write to a path, and send it from there")
    return EncodedWriter(fileobj, encoder, **_supported(**options))


def _supported(compress: Any = None, keep_meta: Any = None, **options: Any) -> dict[str, Any]:
    refuse(compress=compress, keep_meta=keep_meta)
    return {name: value for name, value in options.items() if name not in IGNORED}


def _encoder(spec: Any) -> Encoder:
    if spec is True:
        return dict
    if spec is False or spec is None:
        return _as_bytes
    if isinstance(spec, Mapping) and all(map(callable, spec.values())):
        return lambda sample: {name: _by_extension(spec, name, value) for name, value in sample.items()}
    if callable(spec):
        return lambda sample: _as_bytes(spec(sample))
    raise ArgumentTypeError("encoder", "must be a bool, a function, or functions by extension", spec)


def _by_extension(functions: Mapping[str, Callable[[Any], Any]], name: str, value: Any) -> Any:
    function = functions.get(name.rsplit(".", 1)[-1])
    return value if function is None or isinstance(value, bytes) or name[:1] == "_" else function(value)


def _as_bytes(sample: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in sample.items():
        if name[:1] != "_" and not isinstance(value, bytes | bytearray | memoryview):
            raise ArgumentValueError(name, "is not bytes, and has no encoder", type(value).__name__)
    return sample
