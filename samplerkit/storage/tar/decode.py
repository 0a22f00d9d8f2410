"""Decoding of a sample's files by their extensions; data never run code."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.storage.tar.format.inflate import TooLargeError, inflated, most_in_memory
from samplerkit.storage.tar.images import IMAGE_EXTENSIONS, IMAGE_SPECS, decode_image

Handler = Callable[[str, bytes], Any]
"""Takes an extension with its dot, and the bytes; gives what they mean, or None to leave it to others."""

REFUSED = frozenset({"pkl", "pickle", "pyd", "pth", "pt"})
"""Extensions of files that run code when they are loaded."""

OTHERS = frozenset({"ten", "tb", "mp", "msg", "cbor"})
"""Extensions that webdataset decodes by packages of their own."""


def _text(data: bytes) -> str:
    return data.decode("utf-8")


def _npy(data: bytes) -> Any:
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def _npz(data: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        most = most_in_memory(len(data))
        if sum(each.file_size for each in arrays.zip.infolist()) > most:
            raise TooLargeError(most)
        return dict(arrays)


def _unpacked(data: bytes) -> bytes:
    return b"".join(inflated(io.BytesIO(data).read, most_in_memory(len(data)))) if data else data


DECODERS: Mapping[str, Callable[[bytes], Any]] = MappingProxyType(
    {
        **dict.fromkeys(("txt", "text", "transcript"), _text),
        **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), int),
        **dict.fromkeys(("json", "jsn"), json.loads),
        "npy": _npy,
        "npz": _npz,
    }
)
"""What is decoded without being asked for."""


@dataclass(frozen=True)
class Decode:
    """Decodes the files of a sample.

    Args:
        handlers: short names of images, and functions; the first that gives something else than None wins.
        only: the fields to decode; None for all.

    Example:
        >>> Decode(("pil",))({"__key__": "a", "cls": b"3", "txt": b"three"})
        {'__key__': 'a', 'cls': 3, 'txt': 'three'}
    """

    handlers: tuple[str | Handler, ...]
    only: frozenset[str] | None = None

    @classmethod
    def of(cls, handlers: tuple[Any, ...], only: Any) -> Decode:
        """Takes the arguments of a user.

        Raises:
            ArgumentTypeError: a handler is neither a string nor a function, or `only` no names.
            ArgumentValueError: a short name is not known.
        """
        for handler in handlers:
            if isinstance(handler, str):
                if handler not in IMAGE_SPECS:
                    known = ", ".join(sorted(IMAGE_SPECS))
                    raise ArgumentValueError("decode", "is no kind of image", handler, mend=f"known: {known}")
            elif not callable(handler):
                raise ArgumentTypeError("decode", "must be a short name or a function", handler)
        names = only.split() if isinstance(only, str) else only
        if names is not None and not (
            isinstance(names, list | tuple | set | frozenset) and all(isinstance(name, str) for name in names)
        ):
            raise ArgumentTypeError("only", "must be names of fields", only)
        return cls(handlers, None if names is None else frozenset(names))

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        result = {}
        for name, value in sample.items():
            is_encoded = isinstance(value, bytes) and not name.startswith("__")
            if not is_encoded or (self.only is not None and name not in self.only):
                result[name] = value
                continue
            try:
                result[name] = self._decoded(f".{name}", value)
            except DatasetError as error:
                raise DatasetError(f"field {name!r}", error.problem, mend=error.mend) from error
            except TooLargeError as error:
                problem = (
                    f"{error}, 200 times its size or 256 MiB, as a field does that is made to fill memory"
                )
                mend = "leave it out by only=, and unpack it by map if you trust it"
                raise DatasetError(f"field {name!r}", problem, mend=mend) from error
            except Exception as error:
                raise DatasetError(f"field {name!r}", f"cannot be decoded ({error})") from error
        return result

    def _decoded(self, extension: str, data: bytes) -> Any:
        if extension.endswith(".gz"):
            extension, data = extension[:-3], _unpacked(data)
        last = extension[extension.rfind(".") + 1 :]
        for handler in self.handlers:
            if isinstance(handler, str):
                value = decode_image(handler, data) if last.lower() in IMAGE_EXTENSIONS else None
            else:
                value = handler(extension, data)
            if value is not None:
                return value
        if last in DECODERS:
            return DECODERS[last](data)
        if last in REFUSED:
            raise DatasetError(
                "decode",
                "is a pickle, which runs code when it is loaded",
                mend="give decode a function for it if you trust the data, or name the others in only=",
            )
        if last in OTHERS:
            mend = "give decode a function for it, or name the others in only="
            raise DatasetError("decode", "has no decoder here", mend=mend)
        return data
