"""What a user says of the windows of token files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

from samplerkit.errors import ArgumentValueError
from samplerkit.order import arguments
from samplerkit.storage.tokens.formats import Dtype, token_dtype
from samplerkit.storage.tokens.split import PARTS, shares_of

Documents = Literal["idx"] | int | None
"""What tells where documents begin."""


@final
@dataclass(frozen=True)
class WantedWindows:
    """Arguments of `TokenDataset` of these names, checked."""

    seq_len: int
    block_len: int
    dtype: Dtype | None
    phase: bool
    seed: int
    split: str | None
    part: str
    documents: Documents

    @classmethod
    def of(
        cls,
        seq_len: Any,
        block_len: Any,
        dtype: Any,
        phase: Any,
        seed: Any,
        split: Any,
        part: Any,
        documents: Any,
    ) -> WantedWindows:
        """Checks what was said.

        Raises:
            ArgumentTypeError: an argument has the wrong type.
            ArgumentValueError: `block_len` is no multiple of `seq_len`, or a name is not known.
            ArgumentRangeError: a length is not positive.
        """
        length = arguments.positive("seq_len", seq_len)
        wanted = cls(
            length,
            length if block_len is None else arguments.positive("block_len", block_len),
            None if dtype is None else token_dtype("dtype", dtype),
            arguments.boolean("phase", phase),
            arguments.seed(seed),
            split,
            arguments.choice("part", part, PARTS),
            _documents(documents),
        )
        if split is not None:
            shares_of(split)
        if wanted.block_len % length:
            mend = f"say a multiple, such as {-(-wanted.block_len // length) * length}"
            raise ArgumentValueError(
                "block_len", f"must be a multiple of seq_len={length}", block_len, mend=mend
            )
        if not wanted.phase and wanted.block_len != length:
            raise ArgumentValueError(
                "block_len",
                "goes with a phase: without one there are no blocks",
                block_len,
                mend="leave it out",
            )
        return wanted


def _documents(value: Any) -> Documents:
    if value is None:
        return None
    if isinstance(value, str) and value == "idx":
        return "idx"
    if isinstance(value, str):
        raise ArgumentValueError("documents", "is not known", value, mend="say 'idx', a token, or None")
    return arguments.integer("documents", value)
