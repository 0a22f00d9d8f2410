"""What the other rooms ask of URLs, and which files a pattern of URLs means."""

from __future__ import annotations

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.address import beside, has_pattern, is_remote, is_web, local_path, shown
from samplerkit.storage.remote.counts import Counts
from samplerkit.storage.remote.filesystem import Filesystems
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retry import plainly, retried
from samplerkit.storage.remote.stopping import Stop

__all__ = ["beside", "expand", "has_pattern", "is_remote", "local_path", "shown"]


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
        raise DatasetError(shown(pattern), "is a pattern, and HTTP has no listing", mend="name each URL")
    if "::" in pattern:
        raise DatasetError(shown(pattern), "is a pattern in a chain of URLs", mend="name each URL")
    counts, stop = Counts(), Stop()
    filesystems = Filesystems(options, counts)
    urls = plainly(
        pattern,
        lambda: retried(pattern, lambda: filesystems.matches(pattern, stop), options, counts, stop),
    )
    if not urls:
        raise DatasetError(shown(pattern), "no file matches", mend="check folder and pattern")
    return urls
