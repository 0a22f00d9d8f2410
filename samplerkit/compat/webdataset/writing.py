"""webdataset's name for what writes shards."""

from __future__ import annotations

from typing import Any

from samplerkit.storage.tar.writer import TarWriter


def ShardWriter(  # noqa: N802  # a class in webdataset
    pattern: str, maxcount: int = 100_000, maxsize: float = 3e9, **options: Any
) -> TarWriter:
    """Writes samples into numbered shards: a `samplerkit.TarWriter`, with webdataset's names of the limits.

    Args:
        pattern: the path of the shards, with a place for their number, `train-%06d.tar`.
        maxcount: samples a shard.
        maxsize: bytes a shard.
        options: of `TarWriter`.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: the pattern has no place for a number.
        ArgumentRangeError: a limit is not positive.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, ShardWriter(f"{folder}/%03d.tar", maxcount=2) as writer:
        ...     for number in range(3):
        ...         writer.write({"__key__": str(number), "txt": "hello"})
        ...     writer.num_samples
        3
    """
    return TarWriter(pattern, samples_per_shard=maxcount, bytes_per_shard=int(maxsize), **options)
