"""What the arguments of datasets may be in a config."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Strict

from samplerkit.config.derive import Under
from samplerkit.config.section import Section
from samplerkit.storage.remote.options import RemoteOptions

Paths = Annotated[str | list[str], Under()]
"""A path, a pattern, or a list of them."""

CorpusPaths = Paths | dict[str, Paths | dict[str, Paths]]
"""Paths, or corpora by name; one of them may have parts by name itself."""

FieldNames = Annotated[list[str] | None, Strict()]
"""Names that stand in the config itself; a list that is not annotated may also be a `.npy` file."""

PathOrLengths = Annotated[str | list[int] | dict[str, int] | None, Under()]
"""Samples in each file, in order or by name, or the path of a file that says so."""

Remote = Annotated[Any, Section("remote", RemoteOptions, others=(None,))]
"""How URLs are fetched."""

RemoteOrNot = Annotated[Any, Section("remote", RemoteOptions, others=(None, False))]
"""How URLs are fetched; false leaves them to the reader."""

Conditions = Annotated[list[Any] | None, Strict()]
"""Conditions on rows, or lists of these."""
