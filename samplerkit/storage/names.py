"""Names of files and shards: what braces mean, as in a shell, and what is left without the shared folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from samplerkit.errors import ArgumentValueError
from samplerkit.storage.urls import is_remote, shown

MOST_NAMES = 10_000_000
"""More names than this are taken for a mistake."""

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?\Z")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?\Z")


def expand_braces(pattern: str) -> list[str]:
    """Expands the braces of a pattern as a shell does.

    Args:
        pattern: with any number of `{first..last}`, `{first..last..step}` and `{one,other}`, nested or not.

    Raises:
        ArgumentValueError: a brace is not closed, or a step is 0.

    Example:
        >>> expand_braces("train-{08..10}.tar"), expand_braces("{a,b{1..2}}.tar")
        (['train-08.tar', 'train-09.tar', 'train-10.tar'], ['a.tar', 'b1.tar', 'b2.tar'])
    """
    expanded = []
    for name in _expanded(pattern):
        expanded.append(name)
        if len(expanded) > MOST_NAMES:
            raise _too_many(pattern)
    return expanded


def short_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Gives names below the folder that all archives share, which stay the same when that is moved.

    Example:
        >>> short_names(("/data/a/0.tar", "/data/b/0.tar"))
        ('a/0.tar', 'b/0.tar')
        >>> short_names(("s3://bucket/a/0.tar", "s3://bucket/b/0.tar"))
        ('a/0.tar', 'b/0.tar')
    """
    if any(map(is_remote, names)):
        full = [shown(name) if is_remote(name) else str(Path(name).absolute()) for name in names]
        folders = [name.split("/")[:-1] for name in full]
        # Of lists, the longest one that all begin with lies between the smallest and the largest.
        first, last = min(folders), max(folders)
        same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        return tuple("/".join(name.split("/")[same:]) for name in full)
    folders_of_paths = {str(Path(name).absolute().parent) for name in names}
    shared = os.path.commonpath(folders_of_paths)
    return tuple(os.path.relpath(Path(name).absolute(), shared) for name in names)


def _expanded(pattern: str) -> Iterator[str]:
    start = pattern.find("{")
    if start < 0:
        yield pattern
        return
    end = _closing(pattern, start)
    if pattern[start + 1 : end].strip() == "":
        raise ArgumentValueError("urls", "has empty braces", pattern, hint="as in train-{000..127}.tar")
    for middle in _alternatives(pattern[start + 1 : end], pattern):
        for rest in _expanded(pattern[end + 1 :]):
            yield f"{pattern[:start]}{middle}{rest}"


def _closing(pattern: str, start: int) -> int:
    depth = 0
    for position in range(start, len(pattern)):
        depth += {"{": 1, "}": -1}.get(pattern[position], 0)
        if depth == 0:
            return position
    raise ArgumentValueError("urls", "has a brace that is not closed", pattern)


def _alternatives(inside: str, pattern: str) -> Iterator[str]:
    if match := _RANGE.match(inside):
        yield from _numbers(match[1], match[2], match[3], pattern)
        return
    if match := _LETTERS.match(inside):
        yield from (chr(code) for code in _range(ord(match[1]), ord(match[2]), match[3], pattern))
        return
    parts = _split(inside)
    if len(parts) == 1:
        hint = "write a range as {000..127} and a choice as {a,b}"
        raise ArgumentValueError("urls", "has braces that mean nothing", pattern, hint=hint)
    for part in parts:
        yield from _expanded(part)


def _split(inside: str) -> list[str]:
    """Splits at the commas that stand in no inner braces."""
    parts, depth = [""], 0
    for letter in inside:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _numbers(first: str, last: str, step: str | None, pattern: str) -> Iterator[str]:
    padded = any(len(text.lstrip("-")) > 1 and text.lstrip("-").startswith("0") for text in (first, last))
    width = max(len(first), len(last)) if padded else 0
    for number in _range(int(first), int(last), step, pattern):
        yield f"{number:0{width}d}" if width else str(number)


def _range(first: int, last: int, step: str | None, pattern: str) -> range:
    stride = abs(int(step)) if step is not None else 1
    if stride == 0:
        raise ArgumentValueError("urls", "has a step of 0", pattern)
    numbers = range(first, last + 1, stride) if first <= last else range(first, last - 1, -stride)
    # Told before any is made; of choices and nested braces, `expand_braces` counts what they come to.
    if len(numbers) > MOST_NAMES:
        raise _too_many(pattern)
    return numbers


def _too_many(pattern: str) -> ArgumentValueError:
    return ArgumentValueError("urls", f"means more than {MOST_NAMES} archives", pattern)
