"""Which digest the file of a URL must have."""

from __future__ import annotations

from collections.abc import Mapping

from samplerkit.storage.urls import shown


def digest_of(digests: Mapping[str, str] | None, url: str) -> str | None:
    """Finds the digest of a URL: by the URL, else by the longest end of its path that is named.

    Args:
        digests: by URL, or by the last parts of a path, such as "a.tar" and "train/a.tar".
        url: of the file.

    Returns:
        As it was told, such as "sha256:9f86d0..."; None if none was.

    Example:
        >>> digest_of({"a.tar": "md5:1", "train/a.tar": "md5:2"}, "https://host/train/a.tar?token=5")
        'md5:2'
    """
    if not digests:
        return None
    address = shown(url)
    for name in (url, address):
        if name in digests:
            return digests[name]
    parts = address.split("/")
    ends = ("/".join(parts[first:]) for first in range(3, len(parts)))
    return next((digests[end] for end in ends if end in digests), None)
