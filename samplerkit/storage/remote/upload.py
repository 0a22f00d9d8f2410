"""Small files that are put beside remote ones, where that is asked for."""

from __future__ import annotations

from typing import final

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.address import is_web, shown
from samplerkit.storage.remote.counts import Counts
from samplerkit.storage.remote.filesystem import Filesystems
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retry import plainly, retried
from samplerkit.storage.remote.stopping import Stop


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
            mend = "say --out FOLDER, and upload what is in it"
            raise DatasetError(shown(url), "cannot be written by HTTP", mend=mend)

        def attempt() -> None:
            self._filesystems.put(url, data, self._stop)

        try:
            plainly(url, lambda: retried(url, attempt, self._options, self._counts, self._stop))
        except DatasetError as error:
            problem, mend = f"cannot be written: {error.problem}", error.mend
        else:
            return
        raise DatasetError(shown(url), problem, mend=mend)
