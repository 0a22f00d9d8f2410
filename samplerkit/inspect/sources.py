"""What an epoch of a mixture reads of each source: shares of samples and tokens, passes so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from samplerkit.inspect.view import RunView
from samplerkit.samplers.mixing.source_reads import SourceRead, source_reads


@final
@dataclass(frozen=True)
class SourceFigures:
    """What an epoch reads of a source of a mixture.

    Args:
        share: of the samples of the epoch.
        share_of_tokens: of its tokens; None where the dataset has no `lengths`.
        passes: how often the source was read from the first epoch to the end of this one.
        tokens: how many of it were read, likewise; None likewise.
    """

    share: float
    share_of_tokens: float | None
    passes: float
    tokens: int | None


def source_figures(view: RunView, epoch: int) -> dict[str, SourceFigures]:
    """Looks at a run; empty where it reads no mixture."""
    order = view.run.undealt(epoch)
    before, after = (source_reads(view.run.recipe, view.run.dataset, order, at) for at in (0, len(order)))
    none = SourceRead(0, 0.0, 0)
    samples = {name: one.samples - before.get(name, none).samples for name, one in after.items()}
    tokens = {
        name: one.tokens - (before.get(name, none).tokens or 0)
        for name, one in after.items()
        if one.tokens is not None
    }
    of_all = sum(tokens.values()) if len(tokens) == len(samples) else 0
    return {
        name: SourceFigures(
            count / max(1, sum(samples.values())),
            tokens[name] / of_all if of_all else None,
            after[name].passes,
            after[name].tokens,
        )
        for name, count in samples.items()
    }
