"""A cache of tables in a folder: each is found by its name, and written completely or not at all."""

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np

from samplerkit.storage.atomic import atomic, user_cache_folder

_BLOCK = 1 << 20


class TableCache:
    """Arrays in files that all processes of a machine share.

    A file that cannot be read is written again. Without a folder that can be written to, arrays are computed
    in each process.

    Args:
        folder: of the files; None for the folder `batches` in samplerkit's cache folder of the user.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder: Final = user_cache_folder() / "batches" if folder is None else Path(folder)

    def arrays(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns the small arrays that are cached by a name; otherwise makes and caches them."""
        path = self.folder / f"{name}.npz"
        try:
            with np.load(path, allow_pickle=False) as saved:
                return {key: saved[key] for key in saved.files}
        except Exception:  # for a damaged file numpy raises many kinds, such as TokenError
            arrays = make()
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic(path) as file:
                np.savez(file, **arrays)
        return arrays

    def mapped(self, name: str, size: int, dtype: Any, fill: Callable[[Any], None]) -> np.ndarray[Any, Any]:
        """Returns the large array that is cached by a name; otherwise makes and caches it.

        Args:
            name: of the array.
            size: the number of its entries.
            dtype: of its entries.
            fill: writes the entries into an empty array.

        Returns:
            The array of shape (size,), memory-mapped read-only; in memory if the folder cannot be written to.
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
                # Zeros reserve the space: to write into a hole of a mapped file kills the process if the disk
                # is full.
                blocks, rest = divmod(size * np.dtype(dtype).itemsize, _BLOCK)
                file.writelines([*repeat(bytes(_BLOCK), blocks), bytes(rest)])
                file.flush()
                mapped = np.memmap(file, dtype=dtype, mode="r+", offset=start, shape=(size,))
                fill(mapped)
                mapped.flush()
                del mapped
            array = _open_array(path, size, dtype)
        if array is None:  # or the file was deleted meanwhile
            array = np.empty(size, dtype=dtype)
            fill(array)
        return array


def _open_array(path: Path, size: int, dtype: Any) -> np.ndarray[Any, Any] | None:
    try:
        array: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception:  # as above
        return None
    return array if array.shape == (size,) and array.dtype == dtype else None
