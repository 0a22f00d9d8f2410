"""Windows of tokens whose length is to change: by an order that does not survive it, or that steps miss."""

from __future__ import annotations

from collections.abc import Iterator

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.tokens import token_figures


def seq_len_is_fixed(patient: Patient) -> Iterator[Finding]:
    """Blocks of several windows, in an order of windows; or pools at whose ends no step ends."""
    view = patient.view
    if view is None or view.recipe is not None or view.run.tokens is None:
        return
    tokens = view.run.tokens
    if tokens.pool is None and tokens.pieces > 1 and not patient.is_evaluation:
        yield Finding(
            "seq-len-fixed",
            "warning",
            f"blocks of {tokens.block_len} tokens let seq_len change, and the order is one of windows, which "
            "does not survive that",
            "read by sk.BlockSampler, or leave block_len out",
        )
        return
    found = token_figures(view, view.epoch, len(view.run.undealt(view.epoch)))
    if found is not None and tokens.pool is not None and found.steps_to_a_change is None:
        yield Finding(
            "pools-missed",
            "warning",
            f"steps of {found.tokens_a_step} tokens never end with a pool of {tokens.pool} blocks of "
            f"{found.block_len} tokens within an epoch: seq_len may change at the end of one alone",
            "make pool * block_len a multiple of the tokens a step",
        )


def evaluation_with_phase(patient: Patient) -> Iterator[Finding]:
    """Windows in the order of their files, which begin at another token in each epoch."""
    # Known by its looks: this room does not know that of tokens.
    has_phase = getattr(patient.dataset, "wants_epochs", False) is True
    if not (patient.is_evaluation and has_phase and hasattr(patient.dataset, "windows_per_block")):
        return
    yield Finding(
        "evaluation-with-phase",
        "warning",
        "windows of tokens are read in order, as for an evaluation, and each epoch begins at another token: "
        "no two evaluations read the same windows",
        "say TokenDataset(..., phase=False) for evaluation, or shuffle",
    )
