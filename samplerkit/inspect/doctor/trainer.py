"""Trainers that are known by their looks: what one does with its loader, besides reading it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, eq=False)
class Trainer:
    """A trainer that has its loader, whichever package it is of.

    Args:
        name: as its users know it.
        loader: what it trains on.
        skips: what it does to come past the batches of before, where it resumes; empty if it leaves that
            to the loader.
        instead: what makes it leave that to the loader.
        counts: whether it asks for the number of batches once, and leaves each epoch after as many.
    """

    name: str
    loader: Any
    skips: str = ""
    instead: str = ""
    counts: bool = True

    @classmethod
    def of(cls, source: Any) -> Trainer | None:
        """Gives what is known of an object; None of one that is no trainer, or has no loader yet.

        It is known by its attributes, so that no package is imported for it.
        """
        if callable(getattr(source, "get_train_dataloader", None)) and hasattr(source, "args"):
            skips = "" if source.args.ignore_data_skip else "wraps its loader in another one, which skips"
            instead = "call samplerkit.compat.huggingface.use_loader(trainer, loader)"
            return cls("Hugging Face's Trainer", source.get_train_dataloader(), skips, instead)
        if hasattr(source, "spin_dataloaders") and hasattr(source, "state"):
            skips = "reads and throws away" if source.spin_dataloaders else ""
            loader = source.state.train_dataloader
            return cls("Composer's Trainer", loader, skips, "say spin_dataloaders=False", counts=False)
        if hasattr(source, "fit_loop") and getattr(source, "train_dataloader", None) is not None:
            return cls("Lightning's Trainer", source.train_dataloader)
        return None
