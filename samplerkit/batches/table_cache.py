"""Tables that can be computed again, in a folder: found by name, written as a whole or not at all."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from samplerkit.storage.atomic import atomic, user_cache_folder

_FOLDER = "batches"
_BLOCK = 1 << 20


@final
class TableCache:
    """Arrays in a folder that all processes of a machine share.

    A file that cannot be read is made again. A folder that cannot be written to costs time and nothing else.

    Args:
        folder: where; None for the folder `batches` in samplerkit's cache folder of the user.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder: Final = user_cache_folder() / _FOLDER if folder is None else Path(folder)

    def arrays(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns the small arrays that were kept by a name; makes them if there are none."""
        path = self.folder / f"{name}.npz"
        try:
            with np.load(path, allow_pickle=False) as saved:
                return {key: saved[key] for key in saved.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
            arrays = make()
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic(path) as file:
                np.savez(file, **arrays)
        return arrays

    def mapped(self, name: str, size: int, dtype: Any, fill: Callable[[Any], None]) -> np.ndarray[Any, Any]:
        """Maps the large array that was kept by a name; makes it if there is none.

        Args:
            name: under which it is kept.
            size: the number of its entries.
            dtype: of its entries.
            fill: writes the entries of an empty array.

        Returns:
            The array, read-only and mapped; in memory if the folder cannot be written to.
        """
        path = self.folder / f"{name}.npy"
        array = _open_array(path, size, dtype)
        if array is not None:
            return array
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic(path) as file:
                header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (size,)}
                np.lib.format.write_array_header_1_0(file, header)
                start = file.tell()
                # Takes the blocks: to write to a hole of a mapped file, on a full disk, kills the process.
                blocks, rest = divmod(size * np.dtype(dtype).itemsize, _BLOCK)
                file.writelines([*repeat(bytes(_BLOCK), blocks), bytes(rest)])
                file.flush()
                mapped = np.memmap(file, dtype=dtype, mode="r+", offset=start, shape=(size,))
                fill(mapped)
                mapped.flush()
                del mapped
            array = _open_array(path, size, dtype)
        if array is None:  # or the folder is emptied at this moment
            array = np.empty(size, dtype=dtype)
            fill(array)
        return array


def _open_array(path: Path, size: int, dtype: Any) -> np.ndarray[Any, Any] | None:
    try:
        array: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return array if array.shape == (size,) and array.dtype == dtype else None
