"""`FileStats`: what a dataset has read, waited for, requested and downloaded."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class FileStats:
    """Counters of a dataset of files, in a process.

    Args:
        files_read: the number of file reads.
        files_counted: the number of files opened only to count their samples.
        bytes_read: the total size in memory of the files read, as returned by the reader.
        hits: how often a needed file was in memory.
        waits: how often a needed file had to be waited for.
        wait_seconds: the total time of these waits.
        peak_files: the most files in memory at a time, including those being read.
        peak_bytes: the most bytes in memory at a time; a file counts once it is read.
        requests: the number of requests to remote storage; each attempt counts, but following a redirect
            does not.
        retries: how many of these were attempts after the first one of a request.
        downloads: the number of files that this process fetched, without those that others had fetched.
        bytes_downloaded: the bytes of file content received, including those of attempts that failed later.
    """

    files_read: int = 0
    files_counted: int = 0
    bytes_read: int = 0
    hits: int = 0
    waits: int = 0
    wait_seconds: float = 0.0
    peak_files: int = 0
    peak_bytes: int = 0
    requests: int = 0
    retries: int = 0
    downloads: int = 0
    bytes_downloaded: int = 0

    def __add__(self, other: FileStats) -> FileStats:
        """Adds the counters of two processes; of peaks the higher one is taken."""
        peaks = {"peak_files": max(self.peak_files, other.peak_files)}
        peaks["peak_bytes"] = max(self.peak_bytes, other.peak_bytes)
        names = (field.name for field in fields(self) if field.name not in peaks)
        return FileStats(**{name: getattr(self, name) + getattr(other, name) for name in names}, **peaks)
