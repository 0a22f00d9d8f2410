"""What is handed out of windows of tokens: inputs, labels and masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.tokens.arguments import Dtype, token_dtype

Array = np.ndarray[Any, Any]

OUTPUTS: Final = ("tokens", "labels", "loss_mask", "position_ids", "cu_seqlens", "documents")
"""What can be handed out."""

OF_BORDERS: Final = frozenset(OUTPUTS[2:])
"""What depends on where documents begin."""

_DTYPES: Final = {"loss_mask": np.float32, "position_ids": np.int64, "documents": np.int32}
_ALIGNED = 64


def _output_names(outputs: Any) -> tuple[str, ...]:
    if isinstance(outputs, str | bytes) or not isinstance(outputs, Sequence):
        raise ArgumentTypeError("outputs", "must be a list of names", outputs)
    for name in outputs:
        if name not in OUTPUTS:
            raise ArgumentValueError("outputs", "has no such name", name, hint=f"known: {', '.join(OUTPUTS)}")
    if not outputs or len(set(outputs)) < len(outputs):
        raise ArgumentValueError("outputs", "must name one or more, each once", outputs)
    return tuple(outputs)


@final
@dataclass(frozen=True)
class WantedOutputs:
    """Arguments of `TokenDataset` of these names, checked.

    Args:
        names: of the outputs.
        dtype: of the tokens that are handed out.
        vocab_size: of the tokenizer; None where no token is looked at.
    """

    names: tuple[str, ...]
    dtype: Dtype
    vocab_size: int | None

    @classmethod
    def of(cls, outputs: Any, as_dtype: Any, vocab_size: Any) -> WantedOutputs:
        """Checks what was said.

        Raises:
            ArgumentTypeError: an argument has the wrong type.
            ArgumentValueError: a name or a type is not known.
            ArgumentRangeError: the size is not positive.
        """
        return cls(
            _output_names(("tokens",) if outputs is None else outputs),
            token_dtype("as_dtype", as_dtype),
            None if vocab_size is None else arguments.positive("vocab_size", vocab_size),
        )

    @property
    def need_borders(self) -> bool:
        """Whether an output depends on where documents begin."""
        return not OF_BORDERS.isdisjoint(self.names)

    def require_room(self, stored: Dtype, name: str) -> None:
        """Refuses files with tokens that the type cannot hold.

        Args:
            stored: the type of the tokens in the files.
            name: of the first file.

        Raises:
            ArgumentValueError: it cannot.
        """
        if not np.can_cast(stored, self.dtype, "safe"):
            problem = f"cannot hold all tokens of {name}, which are {stored}"
            raise ArgumentValueError("as_dtype", problem, self.dtype.name, hint="say int64")

    def made(self, rows: Array, borders: Array | None, *, is_alone: bool) -> Any:
        """Makes what is handed out of windows that were read.

        Args:
            rows: the tokens as they are stored, shape (batch, S + 1).
            borders: as for `made_outputs`.
            is_alone: whether one window is handed out, and no batch.

        Returns:
            One array, or several by name.
        """
        if self.names == ("tokens",):
            tokens = rows.astype(self.dtype, copy=False)
            return tokens[0] if is_alone else tokens
        made = made_outputs(self.names, rows, self.dtype, borders)
        if is_alone:
            made = {name: values if name == "cu_seqlens" else values[0] for name, values in made.items()}
        return made if len(made) > 1 else made[self.names[0]]


def made_outputs(names: tuple[str, ...], rows: Array, dtype: Any, borders: Array | None) -> dict[str, Array]:
    """Makes what is handed out of a batch.

    The arrays lie in one block of memory: several large ones, given back at each step, are what the C library
    gives back to the system, and each page of them is asked for again in the next step.

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
    size, places = _in_one_block(names, rows.shape, rows.dtype, dtype)
    block = np.empty(size, dtype=np.uint8)
    made = {name: np.ndarray(shape, held, block, at) for name, shape, held, at in places}
    made.setdefault("tokens", rows)
    if dtype != rows.dtype:
        np.copyto(made["tokens"], rows)
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
            made["cu_seqlens"] = np.empty(starts.size + 1, dtype=np.int32)
            made["cu_seqlens"][:-1], made["cu_seqlens"][-1] = starts, inputs.size
            if "position_ids" in names:
                _count_from(starts, made["position_ids"])
    return {name: made[name] for name in names}


@lru_cache(maxsize=64)
def _in_one_block(
    names: tuple[str, ...], shape: tuple[int, int], stored: Any, dtype: Any
) -> tuple[int, tuple[tuple[str, tuple[int, int], Any, int], ...]]:
    """Returns the bytes of a block and, of each array in it, name, shape, type and first byte."""
    wanted = {name: ((shape[0], shape[1] - 1), held) for name, held in _DTYPES.items() if name in names}
    if dtype != stored:
        wanted["tokens"] = (shape, dtype)
    places, at = [], 0
    for name, (of, held) in wanted.items():
        places.append((name, of, held, at))
        at += -(-prod(of) * np.dtype(held).itemsize // _ALIGNED) * _ALIGNED
    return at, tuple(places)


def _count_from(starts: Ids, found: Ids) -> None:
    """Fills positions that begin again at some places, in the batch laid flat."""
    flat, places = found.reshape(-1), np.arange(found.shape[1])
    begins = starts.tolist()
    for begin, end in zip(begins, [*begins[1:], flat.size], strict=True):
        flat[begin:end] = places[: end - begin]
