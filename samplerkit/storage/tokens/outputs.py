"""What is handed out of windows of tokens: inputs, labels, masks, and where documents begin."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order.typing import Ids

OUTPUTS: Final = ("tokens", "labels", "loss_mask", "position_ids", "cu_seqlens", "documents")
"""What can be handed out."""

OF_BORDERS: Final = frozenset(OUTPUTS[2:])
"""What depends on where documents begin."""

_DTYPES: Final = {"loss_mask": np.float32, "position_ids": np.int64, "documents": np.int32}
_ALIGNED = 64

Array = np.ndarray[Any, Any]


def output_names(outputs: Any) -> tuple[str, ...]:
    """Takes the names of outputs.

    Raises:
        ArgumentTypeError: no list of names.
        ArgumentValueError: none, an unknown one, or one that stands twice.
    """
    if isinstance(outputs, str | bytes) or not isinstance(outputs, Sequence):
        raise ArgumentTypeError("outputs", "must be a list of names", outputs)
    for name in outputs:
        if name not in OUTPUTS:
            raise ArgumentValueError("outputs", "has no such name", name, mend=f"known: {', '.join(OUTPUTS)}")
    if not outputs or len(set(outputs)) < len(outputs):
        raise ArgumentValueError("outputs", "must name one or more, each once", outputs)
    return tuple(outputs)


def made_outputs(names: Sequence[str], rows: Array, dtype: Any, borders: Array | None) -> dict[str, Array]:
    """Makes what is handed out of a batch.

    The arrays lie in one block of memory: several large ones, given back at each step, are what the C library
    gives back to the system, and each page of them is asked for anew in the next step.

    Args:
        names: of the outputs.
        rows: the tokens as they are stored, shape (batch, S + 1).
        dtype: of the tokens that are handed out.
        borders: whether a document begins at a token, shape (batch, S + 1), the first of a row included; None
            where no output needs it.

    Returns:
        By name. `tokens` are the rows, of which `labels` take the last S, and leave the first S. The others
        are of shape (batch, S): `loss_mask` float32, 0 where the next token is of another document;
        `position_ids` int64, from 0 in each document; `documents` int32, their numbers in the row, from 0.
        `cu_seqlens` are int32 over the batch laid flat: where documents begin and, last, its end.
    """
    shape = (rows.shape[0], rows.shape[1] - 1)
    wanted: dict[str, tuple[tuple[int, ...], Any]] = {
        name: (shape, held) for name, held in _DTYPES.items() if name in names
    }
    if dtype != rows.dtype:
        wanted["tokens"] = (rows.shape, dtype)
    made = _in_one_block(wanted)
    if dtype == rows.dtype:
        made["tokens"] = rows
    else:
        made["tokens"][:] = rows
    if "labels" in names:
        made |= {"tokens": made["tokens"][:, :-1], "labels": made["tokens"][:, 1:]}
    if borders is not None:
        inputs = borders[:, :-1]
        if "loss_mask" in names:
            np.copyto(made["loss_mask"], ~borders[:, 1:])
        if "documents" in names:
            np.cumsum(inputs, axis=1, dtype=np.int32, out=made["documents"])
            made["documents"] -= np.int32(1)
        if "position_ids" in names or "cu_seqlens" in names:
            starts = np.flatnonzero(inputs)
            made["cu_seqlens"] = np.append(starts, inputs.size).astype(np.int32)
            if "position_ids" in names:
                _count_from(starts, made["position_ids"])
    return {name: made[name] for name in names}


def _in_one_block(wanted: dict[str, tuple[tuple[int, ...], Any]]) -> dict[str, Array]:
    sizes = {
        name: -(-prod(shape) * np.dtype(dtype).itemsize // _ALIGNED) * _ALIGNED
        for name, (shape, dtype) in wanted.items()
    }
    block, at, made = np.empty(sum(sizes.values()), dtype=np.uint8), 0, {}
    for name, (shape, dtype) in wanted.items():
        made[name] = np.ndarray(shape, dtype, block, at)
        at += sizes[name]
    return made


def _count_from(starts: Ids, found: Ids) -> None:
    """Fills positions that begin anew at some places, in the batch laid flat."""
    flat, places = found.reshape(-1), np.arange(found.shape[1])
    begins = starts.tolist()
    for begin, end in zip(begins, [*begins[1:], flat.size], strict=True):
        flat[begin:end] = places[: end - begin]
