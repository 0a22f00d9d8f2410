"""What a dataset of files has done so far, in figures."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class FileStats:
    """What a dataset of files has done so far, in this process and in the workers of its loaders.

    Args:
        files_read: how often a file was read.
        files_counted: how often a file was opened only to count its samples.
        bytes_read: the memory that all files that were read took, as the reader gave them.
        hits: how often a file was wanted and lay in memory.
        waits: how often a file was wanted and had to be waited for.
        wait_seconds: for how long, in all.
        peak_files: the most files in memory at a time, those being read included.
        peak_bytes: the most bytes in memory at a time; those of a file count once it is read.
        requests: what was asked of remote storage, attempts that failed included.
        retries: how many of these were made again.
        downloads: how many files this process fetched; what others of the machine had fetched is not counted.
        bytes_downloaded: the bytes that came.
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
        """Adds up the figures of two processes; of the peaks it takes the higher one."""
        peaks = {"peak_files": max(self.peak_files, other.peak_files)}
        peaks["peak_bytes"] = max(self.peak_bytes, other.peak_bytes)
        names = (field.name for field in fields(self) if field.name not in peaks)
        return FileStats(**{name: getattr(self, name) + getattr(other, name) for name in names}, **peaks)
