"""What was asked of remote servers, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class RemoteStats:
    """What one process has asked of remote servers so far.

    Args:
        requests: requests that were made, each attempt one; those that only followed a redirect do not count.
        bytes: of file content that arrived, also of attempts that failed later.
        retries: attempts after the first one of a request.
        downloads: whole files that this process brought into the cache.
        cache_hits: whole files that lay in the cache, or that another process brought there meanwhile.
        wait_seconds: the time that callers waited for whole files and for parts, in all.
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    downloads: int = 0
    cache_hits: int = 0
    wait_seconds: float = 0.0
