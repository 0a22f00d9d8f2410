"""What is closed at the end of a `with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Is closed at the end of a `with`, however that is left."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Writing(Closing):
    """Is closed at the end of a `with`; where an error ends that, what was written is dropped."""

    @abstractmethod
    def abort(self) -> None:
        """Drops what was written."""

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.close()
        else:
            self.abort()
