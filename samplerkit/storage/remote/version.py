"""The version of a remote file, with which all responses are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from samplerkit.storage.remote.faults import Transient, changed

MODIFIED = "modified "
"""The prefix of a tag that is only a modification time."""

UNKNOWN_SIZE = -1
"""The size of a file whose size the server does not report."""


@final
@dataclass(frozen=True)
class Version:
    """The version of a remote file at its first request.

    Args:
        size: the size in bytes; -1 if the server does not report it.
        tag: a string that changes with the content: the ETag, else a checksum, a generation or the
            modification time, with its name before it; "" if the server sends none.
    """

    size: int
    tag: str = ""

    @property
    def may_resume(self) -> bool:
        """Whether a broken download may be resumed, since a strong tag identifies every byte."""
        is_strong = self.tag != "" and not self.tag.startswith(("W/", MODIFIED))
        return is_strong and self.size != UNKNOWN_SIZE

    def check(self, size: int, tag: str) -> None:
        """Compares the version of a response with this one.

        Args:
            size: the size of the whole file in the response, -1 if it has none.
            tag: the tag in the response, "" if it has none.

        Raises:
            Refused: the versions differ.
            Transient: the response has no tag, though an earlier one had.
        """
        if UNKNOWN_SIZE not in {size, self.size} and size != self.size:
            raise changed()
        if not self.tag:
            return
        if not tag:
            raise Transient("a response without the tag of earlier ones")
        # A weak tag only promises equivalent content; but if it differs, the version differs in any case.
        if tag.removeprefix("W/") != self.tag.removeprefix("W/"):
            raise changed()
