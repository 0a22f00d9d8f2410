"""What is handed out of windows of tokens: inputs, labels, masks, and where documents begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order.typing import Ids

OUTPUTS: Final = ("tokens", "labels", "loss_mask", "position_ids", "cu_seqlens", "documents")
"""What can be handed out."""

OF_BORDERS: Final = frozenset(OUTPUTS[2:])
"""What depends on where documents begin."""

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


def made_outputs(names: Sequence[str], rows: Array, borders: Array | None) -> dict[str, Array]:
    """Makes what is handed out of a batch.

    Args:
        names: of the outputs.
        rows: the tokens, shape (batch, S + 1).
        borders: whether a document begins at a token, shape (batch, S + 1), the first of a row included; None
            where no output needs it.

    Returns:
        By name. `tokens` are the rows, of which `labels` take the last S, and leave the first S. The others
        are of shape (batch, S): `loss_mask` float32, 0 where the next token is of another document;
        `position_ids` int64, from 0 in each document; `documents` int32, their numbers in the row, from 0.
        `cu_seqlens` are int32 over the batch laid flat: where documents begin and, last, its end.
    """
    made: dict[str, Array] = {"tokens": rows}
    if "labels" in names:
        made |= {"tokens": rows[:, :-1], "labels": rows[:, 1:]}
    if borders is not None:
        inputs = borders[:, :-1]
        if "loss_mask" in names:
            made["loss_mask"] = (~borders[:, 1:]).astype(np.float32)
        if "documents" in names:
            made["documents"] = np.cumsum(inputs, axis=1, dtype=np.int32) - np.int32(1)
        if "position_ids" in names or "cu_seqlens" in names:
            starts = np.flatnonzero(inputs)
            made["cu_seqlens"] = np.append(starts, inputs.size).astype(np.int32)
            if "position_ids" in names:
                made["position_ids"] = _positions(starts, inputs.shape)
    return {name: made[name] for name in names}


def _positions(starts: Ids, shape: tuple[int, ...]) -> Ids:
    size = shape[0] * shape[1]
    found, places = np.empty(size, dtype=np.int64), np.arange(shape[1])
    begins = starts.tolist()
    for begin, end in zip(begins, [*begins[1:], size], strict=True):
        found[begin:end] = places[: end - begin]
    return found.reshape(shape)
