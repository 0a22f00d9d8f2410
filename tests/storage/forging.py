"""Files of arrays with a valid digest and wrong content."""

import numpy as np

from samplerkit.storage.arrays import read_arrays, write_arrays


def forge(path, change):
    """Writes a file again after a change of its values and arrays."""
    meta, arrays = read_arrays(path)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    change(meta, arrays)
    write_arrays(path, meta, arrays)
