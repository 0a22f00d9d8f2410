"""Decoding and encoding of the files of a sample by their extensions; decoding never runs code from data."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.storage.files.content import names_of
from samplerkit.storage.files.packages import import_package
from samplerkit.storage.inflate import TooLargeError, inflated, max_in_memory

Handler = Callable[[str, bytes], Any]
"""Decodes a file, given its extension with the dot and its bytes; returns None to leave it to others."""

REFUSED = frozenset({"pkl", "pickle", "pyd", "pth", "pt"})
"""Extensions of files that can run code when they are loaded."""

UNSUPPORTED = frozenset({"ten", "tb", "mp", "msg", "cbor"})
"""Extensions that webdataset decodes with additional packages."""

NUMBERS = frozenset({"cls", "cls2", "index", "inx", "id"})
JSON = frozenset({"json", "jsn"})

IMAGE_SPECS: dict[str, tuple[str, str, str]] = {}
for _mode in ("l", "rgb", "rgba"):
    for _prefix, _kind in (("", "numpy"), ("torch", "torch")):
        IMAGE_SPECS[f"{_prefix}{_mode}8"] = _kind, "uint8", _mode.upper()
        IMAGE_SPECS[f"{_prefix}{_mode}"] = _kind, "float", _mode.upper()
    IMAGE_SPECS[f"pil{_mode}"] = "pil", "", _mode.upper()
IMAGE_SPECS |= {"pil": IMAGE_SPECS["pilrgb"], "torch": IMAGE_SPECS["torchrgb"]}
"""For each short name: the kind of result, its dtype, and its channels."""

# Formats for which Pillow starts another program (Ghostscript, for EPS) are left out for safety.
IMAGE_EXTENSIONS = frozenset(
    """
    apng avif blp bmp bw cur dcx dds dib fli flc ftc ftu gbr gif icb icns ico iim im j2c j2k jfif jp2
    jpc jpe jpeg jpf jpg jpx msp pbm pcd pcx pgm png pnm ppm psd pxr ras rgb rgba sgi tga tif tiff vda
    vst webp xbm xpm
    """.split()  # noqa: SIM905  # a long list is harder to read
)
"""Extensions of the files that are decoded as images."""


def _npz(data: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        max_bytes = max_in_memory(len(data))
        if sum(member.file_size for member in arrays.zip.infolist()) > max_bytes:
            raise TooLargeError(max_bytes)
        return dict(arrays)


def _unpacked(data: bytes) -> bytes:
    return b"".join(inflated(io.BytesIO(data).read, max_in_memory(len(data)))) if data else data


DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("txt", "text", "transcript"), bytes.decode),
    **dict.fromkeys(NUMBERS, int),
    **dict.fromkeys(JSON, json.loads),
    "npy": lambda data: np.lib.format.read_array(io.BytesIO(data), allow_pickle=False),
    "npz": _npz,
}
"""Decoders that are used by default, by extension."""


class Decode:
    """Decodes the files of a sample.

    Args:
        handlers: short names of image formats, and functions; the first result other than None is used.
        only: names of the fields to decode, as a list, a set or one string with spaces; None for all.

    Raises:
        ArgumentTypeError: a handler is neither a string nor a function, or `only` is none of these.
        ArgumentValueError: a short name is unknown, or `only` is empty or has a name twice.

    Example:
        >>> Decode(("pil",))({"__key__": "a", "cls": b"3", "txt": b"three"})
        {'__key__': 'a', 'cls': 3, 'txt': 'three'}
    """

    def __init__(self, handlers: tuple[Any, ...], only: Any = None) -> None:
        for handler in handlers:
            if not isinstance(handler, str) and not callable(handler):
                raise ArgumentTypeError("decode", "must be a short name or a function", handler)
            if isinstance(handler, str) and handler not in IMAGE_SPECS:
                hint = f"known: {', '.join(sorted(IMAGE_SPECS))}"
                raise ArgumentValueError("decode", "is not a kind of image", handler, hint=hint)
        self._handlers: Final[tuple[str | Handler, ...]] = handlers
        names = [*only] if isinstance(only, set | frozenset) else only
        self._only: Final = names_of(names.split() if isinstance(names, str) else names, "only")

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        result = {}
        for name, value in sample.items():
            is_encoded = isinstance(value, bytes) and not name.startswith("__")
            if not is_encoded or (self._only is not None and name not in self._only):
                result[name] = value
                continue
            try:
                result[name] = self._decoded(f".{name}", value)
            except DatasetError as error:
                raise DatasetError(f"field {name!r}", error.problem, hint=error.hint) from error
            except TooLargeError as error:
                problem = f"{error}, 200 times its size or 256 MiB, as a decompression bomb does"
                hint = "leave it out by only=, and unpack it by map if you trust it"
                raise DatasetError(f"field {name!r}", problem, hint=hint) from error
            except Exception as error:
                raise DatasetError(f"field {name!r}", f"cannot be decoded ({error})") from error
        return result

    def _decoded(self, extension: str, data: bytes) -> Any:
        if extension.endswith(".gz"):
            extension, data = extension[:-3], _unpacked(data)
        last = extension[extension.rfind(".") + 1 :]
        for handler in self._handlers:
            if isinstance(handler, str):
                value = decode_image(handler, data) if last.lower() in IMAGE_EXTENSIONS else None
            else:
                value = handler(extension, data)
            if value is not None:
                return value
        if last in DECODERS:
            return DECODERS[last](data)
        if last in REFUSED:
            hint = "give decode a function for it if you trust the data, or name the others in only="
            raise DatasetError("decode", "is a pickle, which runs code when it is loaded", hint=hint)
        if last in UNSUPPORTED:
            hint = "give decode a function for it, or name the others in only="
            raise DatasetError("decode", "has no decoder here", hint=hint)
        return data


def decode_image(spec: str, data: bytes) -> Any:
    """Decodes an image.

    Args:
        spec: one of `IMAGE_SPECS`. `pil*`: a PIL image. `torch*`: a tensor of shape (channels, height,
            width), or (height, width) for `l`. Others: an array of shape (height, width, channels), or
            (height, width) for `l`. Names with an `8` mean uint8, others float32 in [0, 1].
        data: the bytes of the file.

    Raises:
        DatasetError: Pillow is not installed, or would start another program.

    Source: the short names are those of webdataset's `decode`.
    """
    kind, number, mode = IMAGE_SPECS[spec]
    with io.BytesIO(data) as stream:
        image: Any = _pillow().open(stream)
        if image.format == "EPS":  # Pillow detects the format by content, whatever the extension
            raise DatasetError("decode", "is PostScript, for which Pillow would start another program")
        image.load()
        image = image.convert(mode)
    if kind == "pil":
        return image
    pixels: np.ndarray[Any, Any] = np.array(image)
    if number == "float":
        pixels = pixels.astype(np.float32) / 255.0
    if kind == "numpy":
        return pixels
    if pixels.ndim == 3:
        pixels = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    return torch.from_numpy(pixels)


def _pillow() -> Any:
    try:
        # An optional dependency, only for images.
        return import_package("PIL.Image")
    except ImportError as error:
        hint = "install it with: pip install pillow"
        raise DatasetError("decode", "needs Pillow for images", hint=hint) from error


def encode(name: str, value: Any) -> bytes:
    r"""Encodes the value of a field as bytes.

    Args:
        name: the field: an extension such as `cls` or `seg.png`.
        value: bytes, unchanged; text, as UTF-8; an integer for `cls`, `index` and `id`; anything that JSON
            supports for `json`; an array for `npy`; a dict of arrays for `npz`. If the name ends in `.gz`,
            everything except bytes is compressed.

    Raises:
        ArgumentTypeError: the type of the value does not match the extension.
        ArgumentValueError: a string cannot be encoded in UTF-8.

    Example:
        >>> encode("cls", 7), encode("json", {"x": 1}), encode("txt", "é")
        (b'7', b'{"x": 1}', b'\xc3\xa9')
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    plain = name.removesuffix(".gz")
    try:
        data = _encoded(plain.rsplit(".", 1)[-1], value)
    except (TypeError, ValueError, RecursionError) as error:
        kind = ArgumentValueError if isinstance(error, UnicodeError) else ArgumentTypeError
        raise kind(name, f"cannot be encoded ({error})", value, hint="give bytes") from error
    # Compressed without a timestamp, so that the same samples give the same bytes.
    return data if plain == name else gzip.compress(data, mtime=0)


def _encoded(kind: str, value: Any) -> bytes:
    if kind in JSON:
        return json.dumps(value).encode()
    if isinstance(value, str):
        return value.encode()
    if kind in NUMBERS and isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value)).encode()
    stream = io.BytesIO()
    if kind == "npy" and isinstance(value, np.ndarray):
        np.lib.format.write_array(stream, value, allow_pickle=False)
    elif kind == "npz" and isinstance(value, dict):
        # The format of `np.savez`, which has `allow_pickle` only since numpy 2.1.
        with zipfile.ZipFile(stream, "w") as archive:
            for field, array in value.items():
                with archive.open(field + ".npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    else:
        raise TypeError("there is no encoding for such a value")
    return stream.getvalue()
