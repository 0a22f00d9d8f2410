"""Parts of files, and the requests that read them: neighbours by one request, a long part by several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from samplerkit.storage.remote.attempt import Span

NEAR = 64 << 10
"""Bytes between two parts of a file that are read along: they cost less than a request of their own.

Measured by `python -m tests.benchmarks.remote_gaps`: through obstore two requests and one cost the same at a
gap of about 110 KiB, through urllib3 at more than 256 KiB, on loopback, where nothing has to be waited for.
"""

LONGEST = 8 << 20
"""Bytes that one request asks for at most: two at the same time are faster."""


@final
@dataclass(frozen=True)
class Requests:
    """The requests for parts of files.

    Args:
        spans: what each asks for.
        places: the numbers of those that hold a part.
    """

    spans: list[Span]
    places: dict[Span, range]

    @classmethod
    def of(cls, parts: Iterable[Span]) -> Requests:
        """Joins parts that are near one another, and cuts those that are long.

        Example:
            >>> requests = Requests.of([Span("s3://b/k", 9, 1), Span("s3://b/k", 2, 3)])
            >>> requests.spans, requests.taken(Span("s3://b/k", 9, 1), [b"23456789"])
            ([Span(url='s3://b/k', offset=2, length=8)], b'9')
        """
        spans: list[Span] = []
        places: dict[Span, range] = {}
        for part in sorted(set(parts), key=lambda part: (part.url, part.offset, part.length)):
            end = part.offset + part.length
            if spans and (joined := _joined(spans[-1], part)) is not None:
                spans[-1] = joined
                places[part] = range(len(spans) - 1, len(spans))
                continue
            cuts = range(part.offset, end, LONGEST)
            places[part] = range(len(spans), len(spans) + len(cuts))
            spans += [Span(part.url, at, min(LONGEST, end - at)) for at in cuts]
        return cls(spans, places)

    def taken(self, part: Span, answers: Sequence[bytes]) -> bytes:
        """Takes a part out of what was answered; nothing if no byte of it was asked for."""
        numbers = self.places.get(part, range(0))
        if len(numbers) != 1:
            return b"".join(answers[number] for number in numbers)
        at = part.offset - self.spans[numbers[0]].offset
        return answers[numbers[0]][at : at + part.length]


def _joined(before: Span, part: Span) -> Span | None:
    """Gives one span for both, where they are near one another, and together not long."""
    end = max(before.offset + before.length, part.offset + part.length)
    is_near = before.offset <= part.offset <= before.offset + before.length + NEAR
    if part.url != before.url or not is_near or end - before.offset > LONGEST:
        return None
    return Span(part.url, before.offset, end - before.offset)
