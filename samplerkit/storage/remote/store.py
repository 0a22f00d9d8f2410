"""What is asked of a store beside reading: the files that a pattern means, and to keep a small file."""

from __future__ import annotations

from typing import final

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.attempt import in_other_words
from samplerkit.storage.remote.clients.filesystem import Filesystems
from samplerkit.storage.remote.counts import Counts
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import retried
from samplerkit.storage.threads import Stop
from samplerkit.storage.urls import has_pattern, is_web, shown


def expand(pattern: str, options: RemoteOptions) -> tuple[str, ...]:
    """Lists the files that a remote glob pattern means, as URLs sorted by bytes.

    Args:
        pattern: a URL with `*`, `?`, `[...]` or `**` in its path; one without them is given back as it is,
            and nothing is asked.
        options: how the store is reached.

    Raises:
        DatasetError: nothing matches; the store cannot be listed, as HTTP cannot; fsspec is not there.
    """
    if not has_pattern(pattern):
        return (pattern,)
    if is_web(pattern):
        raise DatasetError(shown(pattern), "is a pattern, and HTTP has no listing", hint="name each URL")
    if "::" in pattern:
        raise DatasetError(shown(pattern), "is a pattern in a chain of URLs", hint="name each URL")
    counts, stop = Counts(), Stop()
    filesystems = Filesystems(options, counts)
    urls = retried(pattern, lambda: filesystems.matches(pattern, stop), options, counts, stop)
    if not urls:
        raise DatasetError(shown(pattern), "no file matches", hint="check folder and pattern")
    return urls


@final
class Uploads:
    """Writes small files through fsspec, each by one request; it may be used by several threads.

    Args:
        options: how the store is reached, and how often that is tried.

    Example:
        >>> import fsspec
        >>> Uploads(RemoteOptions()).put("memory://shards/lengths.json", b"{}")
        >>> fsspec.filesystem("memory").cat("/shards/lengths.json")
        b'{}'
    """

    def __init__(self, options: RemoteOptions) -> None:
        self._options = options
        self._counts, self._stop = Counts(), Stop()
        self._filesystems = Filesystems(options, self._counts)

    def put(self, url: str, data: bytes) -> None:
        """Writes a file as a whole.

        Raises:
            DatasetError: it cannot be written, or lies on a web server.
        """
        if is_web(url):
            hint = "say --out FOLDER, and upload what is in it"
            raise DatasetError(shown(url), "cannot be written by HTTP", hint=hint)

        def attempt() -> None:
            self._filesystems.put(url, data, self._stop)

        in_other_words(
            lambda: retried(url, attempt, self._options, self._counts, self._stop),
            DatasetError,
            lambda error: DatasetError(shown(url), f"cannot be written: {error.problem}", hint=error.hint),
        )
