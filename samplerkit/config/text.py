"""From YAML text, or any mapping, to plain data: dicts, lists and scalars, and to nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn

import numpy as np
import yaml
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, ScalarNode

from samplerkit.config.redaction import below, public, told
from samplerkit.errors import ConfigError

DEEPEST = 256
"""How deep a config may be nested: a hundred samplers in LightningCLI's two levels each, and some."""

MOST_REPEATS = 10_000_000
"""How many values a config may hold because lists or mappings are in it more than once."""

_BYTES_AND_STRINGS = (str, bytes, bytearray, memoryview, Enum, np.generic)
_AS_THEY_ARE = frozenset({int, float, str, bool, type(None), np.ndarray})


def plain(section: Mapping[Any, Any], place: str = "") -> dict[str, Any]:
    """Copies a mapping as plain data.

    Numpy numbers become Python's, members of an enum their values, paths strings; other sequences lists,
    other mappings dicts. Numpy arrays stay.

    Raises:
        ConfigError: a key is no string, or the data contains itself, is nested too deeply, or is a few
            lists that repeat one another into something huge.

    Example:
        >>> plain({"indices": (np.int64(3), 4), "shuffle": {}})
        {'indices': [3, 4], 'shuffle': {}}
    """
    copied: dict[str, Any] = _Copy().of(section, place)
    return copied


class _Copy:
    """One copying of a tree of mappings and sequences."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._size = 0
        self._repeats = 0
        # What was copied is kept here, so that its id is not given to something else meanwhile.
        self._done: dict[int, tuple[Any, Any, int]] = {}

    def of(self, value: Any, place: str) -> Any:
        """Copies one value."""
        self._size += 1
        if type(value) in _AS_THEY_ARE:
            return value
        if isinstance(value, Mapping | Sequence) and not isinstance(value, _BYTES_AND_STRINGS):
            return self._container(value, place)
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, np.generic):
            return value.item()
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    def _container(self, value: Any, place: str) -> Any:
        if id(value) in self._open:
            raise ConfigError(place, "contains itself", hint="write it out where it is needed again")
        if id(value) in self._done:
            _, copied, size = self._done[id(value)]
            self._repeats += size
            if self._repeats > MOST_REPEATS:
                raise ConfigError(
                    place, f"repeats more than {MOST_REPEATS} values", hint="keep long lists in .npy files"
                )
            self._size += size
            return copied
        if len(self._open) == DEEPEST:
            raise ConfigError(place[:100], f"is nested more than {DEEPEST} levels deep")
        before = self._size
        self._open.add(id(value))
        copied = self._mapping(value, place) if isinstance(value, Mapping) else self._list(value, place)
        self._open.remove(id(value))
        self._done[id(value)] = (value, copied, self._size - before)
        return copied

    def _mapping(self, mapping: Mapping[Any, Any], place: str) -> dict[str, Any]:
        copied = {}
        for key, value in mapping.items():
            if not isinstance(key, str):
                raise ConfigError(
                    place or "config", "has a key that is no string", public("", key), hint="quote the key"
                )
            copied[str(key)] = self.of(value, below(place, key))
        return copied

    def _list(self, entries: Sequence[Any], place: str) -> list[Any]:
        self._size += len(entries)
        return [
            entry if type(entry) in _AS_THEY_ARE else self.of(entry, below(place, number))
            for number, entry in enumerate(entries)
        ]


LONG = 1 << 18
"""From so many characters on libyaml parses, which is faster; shorter texts get PyYAML's messages."""

MOST_CHARACTERS = (16 if yaml.__with_libyaml__ else 1) << 20
"""A longer text is refused: some two million numbers, or a hundred thousand where libyaml is not there."""

_MERGE = "tag:yaml.org,2002:merge"
_INTEGER = "tag:yaml.org,2002:int"
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_LONGEST_PROBLEM = 120
_QUOTED = re.compile(r"'([^']*)'")


def parse(text: str, source: str = "config") -> Any:
    """Reads YAML text, safely and strictly.

    Raises:
        ConfigError: a mistake, with line and column: of syntax, a key that comes twice, a tag that is not
            plain data, an alias inside of what it names, or a merge key. Or the text is so long that it would
            take more than some seconds.

    Example:
        >>> parse("sampler: {kind: random, seed: 7}")
        {'sampler': {'kind': 'random', 'seed': 7}}
    """
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            source,
            f"has {len(text)} characters, and at most {MOST_CHARACTERS} are read",
            hint="keep long lists in .npy files, and write their paths",
        )
    try:
        loader = _PlainLoader(text, source)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        problem = " ".join(_without_secrets(f"{error.problem or error.context}").split())[:_LONGEST_PROBLEM]
        mark = error.problem_mark or error.context_mark
        raise ConfigError(_at(source, mark), f"is not plain YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
        raise ConfigError(
            f"{source}, line {line + 1}, column {column + 1}", f"is not plain YAML: {error.reason}"
        ) from None
    except RecursionError:
        raise ConfigError(source, "is nested too deeply to be read from here") from None


# types-PyYAML types the loader only in part.
class _PlainLoader(yaml.SafeLoader):
    """A SafeLoader that refuses what would be guessed at: duplicate keys, merge keys, cycles."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._open_anchors: list[str | None] = []
        is_fast = yaml.__with_libyaml__ and len(text) >= LONG
        super().__init__("" if is_fast else text)
        if is_fast:
            # Nodes and values are made, and looked at, as ever; only their text is read by other code.
            parser: Any = yaml.cyaml.CParser(text)  # type: ignore[attr-defined]  # typeshed does not export it
            for name in ("check_event", "peek_event", "get_event"):
                setattr(self, name, getattr(parser, name))

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode and implicit[0] and _NUMBER.fullmatch(value):
            return _INTEGER  # as most entries of long lists are; the rules for all else take their time
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, AliasEvent) and event.anchor in self._open_anchors:
            anchor = told(str(event.anchor)) or "..."
            self._refuse(event, f"the alias *{anchor} stands inside of what it names")
        if len(self._open_anchors) > DEEPEST:
            self._refuse(event, f"nested more than {DEEPEST} levels deep")
        self._open_anchors.append(None if isinstance(event, AliasEvent) else event.anchor)
        try:
            return super().compose_node(parent, index)
        finally:
            self._open_anchors.pop()

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, MappingNode):
            self._check_keys(node)
        return super().construct_mapping(node, deep=deep)

    def _check_keys(self, node: MappingNode) -> None:
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if key.tag == _MERGE:
                # They blow up as aliases of aliases do, and YAML 1.2 has dropped them.
                self._refuse(key, "merge keys (<<) are not read", hint="write the keys out")
            if not isinstance(key, ScalarNode):
                continue
            if (key.tag, key.value) in lines:
                first = lines[key.tag, key.value]
                self._refuse(key, "a key comes twice", key.value, hint=f"the first one is in line {first}")
            lines[key.tag, key.value] = key.start_mark.line + 1

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            if node.tag == _INTEGER and _NUMBER.fullmatch(node.value):
                return int(node.value)
            return super().construct_object(node, deep=deep)
        except ConfigError:
            raise
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError):
            # PyYAML lets the exceptions of int(), of date() and of its own tables out.
            self._refuse(node, f"cannot be read as {str(node.tag).rpartition(':')[2]}", node.value)

    def _refuse(self, marked: Any, problem: str, *value: Any, hint: str = "") -> NoReturn:
        shown = (public("", one) for one in value)
        raise ConfigError(_at(self._source, marked.start_mark), problem, *shown, hint=hint) from None


def _without_secrets(problem: str) -> str:
    """Looks at what PyYAML repeats of the text: names of tags and aliases, between quotation marks."""
    return _QUOTED.sub(lambda found: found[0] if told(found[1]) else "...", problem)


def _at(source: str, mark: Any) -> str:
    return source if mark is None else f"{source}, line {mark.line + 1}, column {mark.column + 1}"
