"""Base classes of objects that are closed at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """An object that is closed at the end of a `with` block, also after an error."""

    @abstractmethod
    def close(self) -> None:
        """Releases open resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Writing(Closing):
    """A writer that is closed at the end of a `with` block; after an error its output is dropped."""

    @abstractmethod
    def abort(self) -> None:
        """Drops the output."""

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.close()
        else:
            self.abort()
