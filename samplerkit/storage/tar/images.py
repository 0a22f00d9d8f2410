"""Images as PIL images, numpy arrays or tensors, by webdataset's short names."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np
import torch

from samplerkit.errors import DatasetError

IMAGE_SPECS: dict[str, tuple[str, str, str]] = {
    f"{prefix}{channels}{suffix}": (kind, number, channels.upper())
    for channels in ("l", "rgb", "rgba")
    for prefix, suffix, kind, number in (
        ("", "8", "numpy", "uint8"),
        ("", "", "numpy", "float"),
        ("torch", "8", "torch", "uint8"),
        ("torch", "", "torch", "float"),
    )
}
IMAGE_SPECS |= {f"pil{channels}": ("pil", "", channels.upper()) for channels in ("l", "rgb", "rgba")}
IMAGE_SPECS |= {"pil": IMAGE_SPECS["pilrgb"], "torch": IMAGE_SPECS["torchrgb"]}
"""For each short name: what is made, of which numbers, and with which channels."""

# Formats for which Pillow starts another program (Ghostscript, for EPS) are left out: data run no code.
IMAGE_EXTENSIONS = frozenset(
    """
    apng avif blp bmp bw cur dcx dds dib fli flc ftc ftu gbr gif icb icns ico iim im j2c j2k jfif jp2
    jpc jpe jpeg jpf jpg jpx msp pbm pcd pcx pgm png pnm ppm psd pxr ras rgb rgba sgi tga tif tiff vda
    vst webp xbm xpm
    """.split()  # noqa: SIM905  # a list of so many is harder to read
)
"""Extensions of the files that are decoded as images."""


def decode_image(spec: str, data: bytes) -> Any:
    """Decodes an image.

    Args:
        spec: one of `IMAGE_SPECS`. `pil*`: a PIL image. `torch*`: a tensor of shape (channels, height,
            width), or (height, width) for `l`. Others: an array of shape (height, width, channels), or
            (height, width) for `l`. With an `8` the numbers are uint8, else float32 in [0, 1].
        data: the bytes of the file.

    Raises:
        DatasetError: Pillow is not installed.

    Source: the short names are those of webdataset's `decode`.
    """
    kind, number, mode = IMAGE_SPECS[spec]
    with io.BytesIO(data) as stream:
        image: Any = _pillow().open(stream)
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
        # An extra: only who decodes images needs it.
        return import_module("PIL.Image")
    except ImportError as error:
        raise DatasetError(
            "decode", "needs Pillow for images", mend="install it with: pip install pillow"
        ) from error
