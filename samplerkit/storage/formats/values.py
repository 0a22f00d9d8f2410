"""Decodes values and samples of MDS and litData from bytes. Pickles are refused."""

import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any, Final

import numpy as np

from samplerkit.storage.files.content import entries_of
from samplerkit.storage.files.packages import extra

Decoder = Callable[[bytes], Any]

_DTYPES: Final = {
    8: "u1", 9: "i1", 16: "<u2", 17: "<i2", 18: "<f2",
    32: "<u4", 33: "<i4", 34: "<f4", 64: "<u8", 65: "<i8", 66: "<f8",
}  # fmt: skip
_SCALARS: Final = {np.dtype(dtype).name for dtype in _DTYPES.values()}
_SHAPE_DTYPES: Final = ("u1", "<u2", "<u4", "<u8")


def unpacked(codec: str, data: bytes, size: int) -> bytes:
    """Decompresses a shard or a part of it with pyarrow.

    Args:
        codec: the name of the compression in pyarrow.
        data: the compressed bytes.
        size: the most bytes that are expected; at most one more is returned.

    Raises:
        OSError: the data are damaged, or do not end where the compression does.
    """
    pa = extra("pyarrow", "mds")
    if codec == "snappy":  # which pyarrow decompresses only as a whole
        plain: bytes = pa.Codec(codec).decompress(data, size, asbytes=True)
    else:  # not as a whole: pyarrow ignores bytes after brotli then
        plain = pa.CompressedInputStream(pa.BufferReader(data), codec).read(size + 1)
    return plain


def cut(data: bytes, sizes: Iterable[int], start: int, end: int) -> list[bytes]:
    """Splits bytes into consecutive values of these sizes.

    Raises:
        ValueError: the sizes do not add up to `end - start`.

    Example:
        >>> cut(b"abcdef", [1, 0, 2], 2, 5)
        [b'c', b'', b'de']
    """
    parts, at = [], start
    for size in sizes:  # a third of the time of `accumulate` and `pairwise` for samples of a few values
        parts.append(data[at : at + size])
        at += size
    if at != end:
        raise ValueError(f"its values take {at - start} bytes, not {end - start}")
    return parts


def ends_in(data: bytes, at: int, count: int) -> list[int]:
    """Reads the offsets at which `count` samples begin and the last one ends.

    Raises:
        ValueError: a sample ends before it begins.
    """
    ends: list[int] = np.frombuffer(data, "<u4", count + 1, at).tolist()
    if ends != sorted(ends):
        raise ValueError("its sample offsets are wrong")
    return ends


def cutter(data: bytes, ends: Sequence[int], sizes: Sequence[int | None]) -> Callable[[int], list[bytes]]:
    """Returns the function that splits a sample, given its number, into the bytes of its values.

    Args:
        data: the bytes of all samples.
        ends: the offsets at which samples begin, and at which the last one ends.
        sizes: the sizes of the values in bytes; a size that is None is stored in each sample, before its
            values.

    Example:
        >>> cutter(bytes([1, 0, 0, 0, 2, 0, 0, 0]) + b"abcd", [0, 12], [None, 1, None])(0)
        [b'a', b'b', b'cd']
    """
    sizes_head = struct.Struct(f"<{sizes.count(None)}I")

    def cut_sample(row: int) -> list[bytes]:
        start = ends[row]
        all_sizes = sizes_head.unpack_from(data, start)
        if len(all_sizes) < len(sizes):
            stored = iter(all_sizes)
            all_sizes = tuple(next(stored) if size is None else size for size in sizes)
        return cut(data, all_sizes, start + sizes_head.size, ends[row + 1])

    return cut_sample


def decoder(encoding: str) -> Decoder:
    """Returns the function that decodes a value from bytes.

    Args:
        encoding: the name of the encoding in an MDS index.

    Raises:
        ValueError: the encoding is not known, or is `pkl`, which would run code.

    Example:
        >>> decoder("int")(bytes([5, 0, 0, 0, 0, 0, 0, 0])), decoder("ndarray:uint8:2,1")(b"ab").tolist()
        (5, [[97], [98]])
    """
    name, _, options = encoding.partition(":")
    if name == "pkl":
        raise ValueError(f"encoding {encoding!r} is a pickle, which is never loaded")
    if name == "ndarray":
        return _array_decoder(options)
    if name in _SCALARS and not options:
        return partial(_scalar, np.dtype(name).newbyteorder("<"))
    decode = _MDS.get(encoding)
    if decode is None:
        raise ValueError(f"encoding {encoding!r} is not supported")
    return decode


def _array_decoder(options: str) -> Decoder:
    kind, _, sizes = options.partition(":")
    if kind and kind not in _SCALARS:
        raise ValueError(f"arrays of {kind!r} are not supported")
    shape = tuple(map(int, sizes.split(","))) if sizes else None
    return partial(_array, np.dtype(kind).newbyteorder("<") if kind else None, shape)


def _array(dtype: Any, shape: tuple[int, ...] | None, data: bytes) -> Any:
    """Reads an array; its dtype and shape are stored before it, unless all arrays have the same."""
    at = 0
    if dtype is None:
        dtype, at = np.dtype(_DTYPES[data[0]]), 1
    if shape is None:
        number, size_dtype = data[at] >> 2, np.dtype(_SHAPE_DTYPES[data[at] % 4])
        shape = tuple(np.frombuffer(data, size_dtype, number, at + 1).tolist())
        at += 1 + number * size_dtype.itemsize
    return _flat(dtype, data[at:]).reshape(shape)


def _flat(dtype: Any, data: bytes) -> Any:
    return np.frombuffer(data, dtype).copy()  # which can be written to


def _scalar(dtype: Any, data: bytes) -> Any:
    (value,) = np.frombuffer(data, dtype)
    return value


def _raw_image(data: bytes) -> Any:
    width, height, length = np.frombuffer(data, "<u4", 3).tolist()
    mode = data[12 : 12 + length].decode()
    if width * height > 8 * len(data):  # before Pillow allocates memory for it
        raise ValueError(f"an image of {width} by {height} does not fit into {len(data)} bytes")
    return extra("PIL.Image", "mds").frombytes(mode, (width, height), data[12 + length :])


def _image(kinds: Sequence[str], data: bytes) -> Any:
    image = extra("PIL.Image", "mds").open(io.BytesIO(data), formats=kinds)
    image.load()  # otherwise damage would be found only later
    return image


def _listed(decode: Decoder, start: int, data: bytes) -> list[Any]:
    """Reads a list: the number of items, their lengths, and the items."""
    number = int.from_bytes(data[start : start + 4], "little")
    sizes = np.frombuffer(data, "<u4", number, start + 4).tolist()
    return [decode(value) for value in cut(data, sizes, start + 4 + 4 * number, len(data))]


def _number(kind: str, data: bytes) -> Any:
    (value,) = struct.unpack(kind, data)
    return value


def _decimal(data: bytes) -> Decimal:
    return Decimal(data.decode())


_JPEG, _PNG = partial(_image, ["JPEG"]), partial(_image, ["PNG"])
_JPEG_OR_PNG = partial(_image, ["JPEG", "PNG"])

_MDS: Final[dict[str, Decoder]] = {
    "bytes": bytes,
    "str": bytes.decode,
    "int": partial(_number, "<q"),
    "str_int": int,
    "str_float": float,
    "str_decimal": _decimal,
    "json": json.loads,
    "pil": _raw_image,
    "jpeg": _JPEG,
    "png": _PNG,
    "jpeg_array": partial(_listed, _JPEG, 0),
    "jpegarray": partial(_listed, _JPEG, 0),
    "list[pil]": partial(_listed, _raw_image, 4),
    "list[jpeg]": partial(_listed, _JPEG, 4),
    "list[png]": partial(_listed, _PNG, 4),
}

# Samples of litData are built from values, in dicts, lists and tuples.

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
"""Makes a sample, or a part of it, from the bytes of its values."""


def sample_maker(spec: Any, decoders: Sequence[Decoder], names: Sequence[str] | None = None) -> Make:
    """Returns the function that makes a sample from the bytes of its values.

    Args:
        spec: the structure of a sample, from the JSON of an index (a torch pytree spec).
        decoders: the decoders of all values of a sample.
        names: the entries to return if samples are dicts; None for all, or if they are not dicts.

    Raises:
        ValueError: the spec is not valid or not supported, has another number of values, or lacks a name.
        LookupError: a value of the spec is missing.

    Example:
        >>> spec = [1, {"type": "builtins.list", "context": "null", "children_spec": []}]
        >>> sample_maker(spec, [])([])
        []
    """
    version, root = spec
    if version != 1:
        raise ValueError(f"samples are described in version {version!r}, but only 1 is supported")
    numbers = count()
    make = _maker(root, decoders, numbers, names)
    if (leaves := next(numbers)) != len(decoders):
        raise ValueError(f"samples have {leaves} values, but {len(decoders)} formats")
    return make


def _maker(
    spec: Any, decoders: Sequence[Decoder], numbers: Iterator[int], names: Sequence[str] | None = None
) -> Make:
    """Makes a part of a sample, whose values have the next numbers."""
    kind = spec["type"]
    if kind is None:
        number = next(numbers)
        return lambda values: decoders[number](values[number])
    makes = [_maker(child, decoders, numbers) for child in spec["children_spec"]]
    if kind == "builtins.dict":
        keys = json.loads(spec["context"])
        if len(set(keys)) < len(keys):
            raise ValueError("a dict has two values of the same name")
        entries = dict(zip(keys, makes, strict=True))
        items = (entries if names is None else entries_of(entries, names)).items()
        return lambda values: {name: make(values) for name, make in items}
    if kind not in {"builtins.list", "builtins.tuple"}:
        raise ValueError(f"samples have a {kind}, which is not supported")
    build = tuple if kind == "builtins.tuple" else list
    return lambda values: build([make(values) for make in makes])


def value_decoder(name: str) -> Decoder:
    """Returns the function that decodes a value from bytes, or one that raises: pickles are never loaded.

    Args:
        name: the name of the serializer in a litData index.

    Example:
        >>> value_decoder("no_header_numpy:4")(b"ab").tolist(), value_decoder("str")(b"ab")
        ([97, 98], 'ab')
    """
    kind, _, number = name.partition(":")
    if kind == "no_header_numpy":
        return partial(_flat, np.dtype(_NUMPY[int(number)]))
    if kind == "no_header_tensor":
        return partial(_tensor, _TORCH[int(number)], (-1,))
    return _LITDATA.get(kind) or partial(_refused, f"values of {name!r} are not supported")


def _refused(problem: str, _data: bytes) -> Any:
    raise ValueError(problem)


def _shaped_array(data: bytes) -> Any:
    kind, number = struct.unpack_from("<II", data)
    shape = struct.unpack_from(f"<{number}I", data, 8)
    return _array(np.dtype(_NUMPY[kind]), shape, data[8 + 4 * number :])


def _tensor(dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    torch = extra("torch", "torch")
    kind = getattr(torch, dtype)
    # A writable copy; torch refuses an empty buffer.
    flat = torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind)
    return flat.reshape(shape)


def _shaped_tensor(data: bytes) -> Any:
    # Early versions wrote little-endian; the code of a dtype is never 0.
    order = "<" if data[0] else ">"
    kind, number = struct.unpack_from(f"{order}II", data)
    shape = struct.unpack_from(f"{order}{number}I", data, 8)
    return _tensor(_TORCH[kind], shape, data[8 + 4 * number :])


def _truth(data: bytes) -> bool:
    if data not in {b"\0", b"\1"}:
        raise ValueError("a bool is neither 0 nor 1")
    return data == b"\1"


_LITDATA: Final[dict[str, Decoder]] = {
    "bytes": bytes,
    "file": bytes,
    "str": bytes.decode,
    "text": bytes.decode,
    "int": decoder("int"),
    "float": partial(_number, "<d"),
    "bool": _truth,
    "numpy": _shaped_array,
    "tensor": _shaped_tensor,
    "pil": decoder("pil"),
    "jpeg": _JPEG_OR_PNG,
    "image": _JPEG_OR_PNG,
    "jpeg_array": decoder("jpeg_array"),
    "pickle": partial(_refused, "a value is a pickle, which is never loaded"),
}
