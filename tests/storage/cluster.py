"""A folder that behaves like a cluster's filesystem, as a user registers one with fsspec for HDFS."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry


class Cluster(LocalFileSystem):
    """Has the URLs of HDFS, and the calls of such a filesystem, over a local folder.

    Attributes:
        root: the folder.
        failures: raised by the next reads, in order; a callable returns the bytes instead.
    """

    protocol = "hdfs"
    root: Path
    failures: list[Any]

    def __init__(self, host: str = "", user: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.pid = os.getpid()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        rest = str(path).removeprefix("hdfs://")
        return "/" + rest.partition("/")[2] if str(path).startswith("hdfs://") else rest

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        return {"host": path.removeprefix("hdfs://").partition("/")[0].rpartition("@")[2]}

    def _local(self, path: str) -> Path:
        return Path(f"{self.root}{self._strip_protocol(path)}")

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        status = super().info(str(self._local(path)))
        return {"name": path, "size": status["size"], "type": status["type"], "mtime": status["mtime"]}

    def ls(self, path: str, detail: bool = False, **options: Any) -> list[Any]:
        base = self._strip_protocol(path).rstrip("/")
        names = [f"{base}/{name}" for name in sorted(each.name for each in self._local(path).iterdir())]
        return [self.info(name) for name in names] if detail else names

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        assert self.pid == os.getpid(), "a filesystem of another process"
        with (self.root / "ledger").open("a", encoding="utf-8") as ledger:
            ledger.write(f"{Path(path).name}\n")
        return self._local(path).open(mode)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, BaseException):
                raise failure
            return failure(path)
        return super().cat_file(path, start, end)


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Registers a filesystem for `hdfs` that serves a folder, and writes what is opened into its `ledger`."""
    Cluster.root, Cluster.failures = folder, []
    (folder / "ledger").write_text("", encoding="utf-8")
    before = _registry.get("hdfs")
    fsspec.register_implementation("hdfs", Cluster, clobber=True)
    try:
        yield "hdfs://namenode:8020"
    finally:
        _registry.pop("hdfs")  # fsspec has no way to take one back
        if before is not None:
            _registry["hdfs"] = before
