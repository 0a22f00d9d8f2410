"""Arguments that a config writes in a way of its own: arrays, paths, shuffle modes, and `auto`."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from samplerkit.config.folder import fetched, joined
from samplerkit.config.place import meant
from samplerkit.config.telling import told
from samplerkit.errors import ConfigError, SamplerkitError
from samplerkit.order.shuffle import Shuffle
from samplerkit.storage.urls import is_remote, shown

REFUSED = "samplerkit"
"""The type of the pydantic errors that are raised here; their context holds problem and mend."""


_DTYPES = ((int, "iu", "integers"), (float, "iuf", "numbers"), (str, "U", "strings"))
"""Types of entries, the kinds of dtypes that hold them, and what they are called."""


@dataclass(frozen=True)
class Inline:
    """Marks an array argument: a list in the config itself, or the path of a `.npy` file.

    Args:
        entry: the type of the entries.
    """

    entry: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(self._read, handler(source))

    def _read(self, value: Any, inline: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            value = load_array(joined((info.context or {}).get("folder", Path()), value))
        if not isinstance(value, np.ndarray):
            return inline(value)
        for entry, kinds, called in _DTYPES:
            if entry is self.entry and value.ndim != 1:
                refuse(f"must be a flat array, and has the shape {value.shape}")
            if entry is self.entry and value.dtype.kind not in kinds:
                refuse(f"must hold {called}, and holds {value.dtype}"[:120])
        return value

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string", "pattern": r"\.npy$"}]}


class Under:
    """Marks a path, or a list of paths: a relative one starts from the folder of the config, a URL stays."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(self._read, handler(source))

    @staticmethod
    def _read(value: Any, paths: Any, info: ValidationInfo) -> Any:
        folder = (info.context or {}).get("folder", Path())
        checked = paths(value)
        if isinstance(checked, list):
            return [joined(folder, path) if isinstance(path, str) else path for path in checked]
        return joined(folder, checked) if isinstance(checked, str) else checked


class ShuffleArgument:
    """Marks the argument that takes a shuffle mode."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    @staticmethod
    def _read(value: Any) -> Shuffle:
        try:
            return Shuffle.parse(value)
        except SamplerkitError as error:
            hint = meant(value, [mode.value for mode in Shuffle])
            refuse(error.problem, hint if hint.startswith("did") else "")

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"enum": [*(mode.value for mode in Shuffle), True, False]}


class Auto:
    """Marks a number that may be left to the running job by the word `auto`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._read, handler(source))

    @staticmethod
    def _read(value: Any, number: Any) -> Any:
        if value == "auto":
            return None
        return refuse("must be an integer or auto") if isinstance(value, str) else number(value)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"const": "auto"}]}


def load_array(path: str) -> np.ndarray[Any, Any]:
    """Reads an array from a `.npy` file; a pickled one is refused.

    Args:
        path: or a URL; it ends in `.npy`.

    Raises:
        PydanticCustomError: there is no such file, or it holds no plain array.
    """
    if not shown(path).endswith(".npy"):
        refuse("must be a list or the path of a .npy file")
    try:
        file = _opened(path)
        loaded = None if file is None else np.load(file, allow_pickle=False)
    except ConfigError as error:
        refuse(error.problem, error.mend)
    except (OSError, ValueError, EOFError, SyntaxError, MemoryError) as error:
        words = (isinstance(error, OSError) and error.strerror) or str(error)
        reason = " ".join(words.partition(". ")[0].split())[:80]
        refuse(f"cannot be read as a .npy file ({reason})", "save it with numpy.save, without objects")
    if file is None:
        refuse("there is no such file", f"looked for {_end_of(path)}" if told(path) else "")
    if not isinstance(loaded, np.ndarray):
        refuse("is an archive of arrays", "save one array with numpy.save")
    return loaded


def refuse(problem: str, mend: str = "") -> NoReturn:
    """Refuses the value that pydantic is looking at."""
    raise PydanticCustomError(REFUSED, "refused", {"problem": problem, "mend": mend})


def _opened(path: str) -> Path | BytesIO | None:
    """Gives what numpy reads of a path or a URL; None if there is no such file."""
    if not is_remote(path):
        return Path(path) if Path(path).is_file() else None
    data = fetched(path)
    return None if data is None else BytesIO(data)


def _end_of(path: str) -> str:
    text = shown(path)
    return text if len(text) <= 100 else f"...{text[-97:]}"
