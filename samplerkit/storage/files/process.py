"""What a dataset of files has in one process."""

from __future__ import annotations

import threading
import weakref
from typing import Any, final

from samplerkit.storage.files.cache import FileCache
from samplerkit.storage.files.stats import FileStats


@final
class Process:
    """What a dataset of files has in one process; a child gets one of its own.

    Attributes:
        lock: held while files are counted, and while the cache is made or let go.
        cache: the files in memory, from the first use on.
        finalizer: stops the cache when the dataset is garbage, and at the interpreter's end.
        stats: the figures of what was before the cache.
    """

    finalizer: weakref.finalize[Any, Any]

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.cache: FileCache | None = None
        self.stats = FileStats()
