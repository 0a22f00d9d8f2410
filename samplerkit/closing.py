"""The base class of objects that are closed at the end of a `with` block."""

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
