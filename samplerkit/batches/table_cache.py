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
        """Gives the small arrays that were kept by a name; makes them if there are none."""
        path = self.folder / f"{name}.npz"
        try:
            with np.load(path, allow_pickle=False) as found:
                return {key: found[key] for key in found.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
            made = make()
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic(path) as file:
                np.savez(file, **made)
        return made

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
        found = _opened(path, size, dtype)
        if found is not None:
            return found
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
                made = np.memmap(file, dtype=dtype, mode="r+", offset=start, shape=(size,))
                fill(made)
                made.flush()
                del made
            found = _opened(path, size, dtype)
        if found is None:  # or the folder is emptied at this moment
            found = np.empty(size, dtype=dtype)
            fill(found)
        return found


def _opened(path: Path, size: int, dtype: Any) -> np.ndarray[Any, Any] | None:
    try:
        found: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.shape == (size,) and found.dtype == dtype else None
