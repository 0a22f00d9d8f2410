"""What a sample of litData is made of: values, in dicts, lists and tuples; and what bytes become them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final, final

import numpy as np

from samplerkit.storage.files.packages import extra
from samplerkit.storage.formats.mds_values import Decoder, decoder

_KINDS: Final[dict[str | None, str]] = {
    None: "leaf",
    "builtins.dict": "dict",
    "builtins.list": "list",
    "builtins.tuple": "tuple",
}

_NUMPY: Final = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", "bool",
)  # fmt: skip

_TORCH: Final = (
    "float32", "float32", "float64", "float64", "complex64", "complex64", "complex128", "complex128",
    "float16", "float16", "bfloat16", "uint8", "int8", "int16", "int16", "int32", "int32", "int64", "int64",
    "bool", "uint16",
)  # fmt: skip

Make = Callable[[Sequence[bytes]], Any]
"""Makes a sample, or a part of one, of the bytes of its values."""


@final
@dataclass(frozen=True)
class SampleTree:
    """A sample, or a part of one.

    Args:
        kind: `leaf`, `dict`, `list` or `tuple`.
        keys: of a dict.
        children: what it holds.
        leaves: how many values.
    """

    kind: str
    keys: tuple[Any, ...]
    children: tuple[SampleTree, ...]
    leaves: int

    def maker(self, decoders: Sequence[Decoder], first: int = 0) -> Make:
        """Gives what makes it of the bytes of all values of a sample; it is put together once.

        Args:
            decoders: of all values of a sample.
            first: the number of its first one.
        """
        if self.kind == "leaf":
            decode = decoders[first]
            return lambda values: decode(values[first])
        starts = accumulate((child.leaves for child in self.children), initial=first)
        makes = [child.maker(decoders, start) for child, start in zip(self.children, starts, strict=False)]
        if self.kind == "dict":
            return lambda values: dict(zip(self.keys, [make(values) for make in makes], strict=True))
        kind = tuple if self.kind == "tuple" else list
        return lambda values: kind([make(values) for make in makes])

    def chosen(self, names: Sequence[str]) -> list[tuple[str, SampleTree, int]]:
        """Gives some entries of a dict: name, part, and the number of its first value.

        Raises:
            ValueError: it is no dict, or lacks a name.
        """
        missing = next((name for name in names if name not in self.keys), None)
        if missing is not None:
            raise ValueError(f"no column {missing!r}, but {list(self.keys)}")
        found, first = {}, 0
        for key, child in zip(self.keys, self.children, strict=True):
            found[key] = (key, child, first)
            first += child.leaves
        return [found[name] for name in names]


def tree_of(said: str) -> SampleTree:
    """Reads a tree as an index says it.

    Raises:
        ValueError: it is none, or of other kinds.
        LookupError: something is missing.

    Example:
        >>> said = '[1, {"type": "builtins.list", "context": "null", "children_spec": []}]'
        >>> tree_of(said).maker([])([])
        []
    """
    version, root = json.loads(said)
    if version != 1:
        raise ValueError(f"samples said in version {version!r}, and only 1 is known")
    return _tree(root)


def _tree(said: Any) -> SampleTree:
    kind = _KINDS.get(said["type"])
    if kind is None:
        raise ValueError(f"samples with a {said['type']}, which is not read")
    children = tuple(map(_tree, said["children_spec"]))
    keys = tuple(json.loads(said["context"])) if kind == "dict" else ()
    if kind == "dict" and len({*keys}) != len(children):
        raise ValueError("a dict with other names than values")
    return SampleTree(kind, keys, children, sum(child.leaves for child in children) if kind != "leaf" else 1)


def value_decoder(name: str) -> Decoder:
    """Gives what makes a value of bytes, or an error: what is pickled is never loaded.

    Args:
        name: as an index of litData says it.

    Example:
        >>> value_decoder("no_header_numpy:4")(b"ab").tolist(), value_decoder("str")(b"ab")
        ([97, 98], 'ab')
    """
    kind, _, more = name.partition(":")
    if kind == "pickle":
        return partial(_refused, "a value that is pickled, which is never loaded")
    if kind == "no_header_numpy":
        return partial(_array, np.dtype(_NUMPY[int(more)]))
    if kind == "no_header_tensor":
        return partial(_tensor, _TORCH[int(more)], None)
    found = _PLAIN.get(kind)
    return partial(_refused, f"a value written by {name!r}, which is not read") if found is None else found


def _refused(problem: str, _data: bytes) -> Any:
    raise ValueError(problem)


def _array(dtype: Any, data: bytes) -> Any:
    return np.frombuffer(data, dtype).copy()


def _shaped_array(data: bytes) -> Any:
    kind, number = struct.unpack_from("<II", data)
    shape = struct.unpack_from(f"<{number}I", data, 8)
    return _array(np.dtype(_NUMPY[kind]), data[8 + 4 * number :]).reshape(shape)


def _tensor(dtype: str, shape: tuple[int, ...] | None, data: bytes) -> Any:
    torch = extra("torch", "torch")
    kind = getattr(torch, dtype)
    # A copy, which can be written to; torch refuses what is empty.
    flat = torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind)
    return flat if shape is None else flat.reshape(shape)


def _shaped_tensor(data: bytes) -> Any:
    # Early versions wrote little endian; no kind is 0.
    order = "<" if data[0] else ">"
    kind, number = struct.unpack_from(f"{order}II", data)
    shape = struct.unpack_from(f"{order}{number}I", data, 8)
    return _tensor(_TORCH[kind], shape, data[8 + 4 * number :])


def _real(data: bytes) -> float:
    (value,) = struct.unpack("<d", data)
    return float(value)


def _truth(data: bytes) -> bool:
    if data not in {b"\0", b"\1"}:
        raise ValueError("neither true nor false")
    return data == b"\1"


def _image(data: bytes) -> Any:
    image = decoder("png" if data.startswith(b"\x89PNG") else "jpeg")
    return image(data)


_PLAIN: Final[dict[str, Decoder]] = {
    "bytes": bytes,
    "file": bytes,
    "str": bytes.decode,
    "text": bytes.decode,
    "int": decoder("int"),
    "float": _real,
    "bool": _truth,
    "numpy": _shaped_array,
    "tensor": _shaped_tensor,
    "pil": decoder("pil"),
    "jpeg": _image,
    "image": _image,
    "jpeg_array": decoder("jpeg_array"),
}
