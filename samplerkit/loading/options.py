"""The options of torch's DataLoader that a loader hands on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

import torch.utils.data

from samplerkit.batches.recipe import BatchRecipe
from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.loading.run.delivery import Tail
from samplerkit.loading.workers.protocol import WorkerKind
from samplerkit.order import arguments

REFUSED = {
    "shuffle": "give the sampler a shuffle mode",
    "batch_sampler": "say batch_size; the loader makes the batches",
    "in_order": "batches come in the order of the sampler",
}
"""Options that a loader does not take, and what to do in place of them."""

_FUNCTIONS = {"collate_fn", "worker_init_fn"}
_SWITCHES = {"pin_memory", "persistent_workers"}
_NEED_WORKERS = ("prefetch_factor", "persistent_workers", "timeout")


def checked_options(
    options: Mapping[str, Any], num_workers: int, workers: WorkerKind = "processes"
) -> dict[str, Any]:
    """Takes the options of a DataLoader, and lets torch say now what it would say at the first batch.

    Args:
        options: by torch's names; those that a loader refuses may be None.
        num_workers: how many workers.
        workers: what they are; torch warns of more processes than there are processors.

    Raises:
        ArgumentTypeError: an option is unknown to torch, or has the wrong type.
        ArgumentRangeError: `prefetch_factor` is not positive, or `timeout` negative.
        ArgumentValueError: an option is one that the sampler decides, needs workers where there are none, or
            torch refuses it.

    Example:
        >>> checked_options({"timeout": 3, "shuffle": None}, num_workers=1)
        {'timeout': 3}
    """
    for option, hint in REFUSED.items():
        if options.get(option) is not None:
            raise ArgumentValueError(option, "is decided by the sampler", options[option], hint=hint)
    taken = {name: value for name, value in options.items() if name not in REFUSED}
    _require_plausible(taken, num_workers)
    nothing: Any = ()
    counted = num_workers if workers == "processes" else min(num_workers, 1)
    try:
        torch.utils.data.DataLoader(nothing, batch_sampler=nothing, num_workers=counted, **taken)
    except TypeError as error:
        raise ArgumentTypeError("dataloader_options", f"are not torch's ({error})", taken) from None
    except ValueError as error:
        raise ArgumentValueError("dataloader_options", f"are refused by torch ({error})", taken) from None
    return taken


def _require_plausible(options: Mapping[str, Any], num_workers: int) -> None:
    """Looks at what torch would take, and some of it stumble over at the first batch."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in _FUNCTIONS & given.keys():
        if not callable(given[name]):
            raise ArgumentTypeError(name, "must be a function", given[name])
    for name in _SWITCHES & given.keys():
        arguments.boolean(name, given[name])
    if not isinstance(given.get("generator", torch.default_generator), torch.Generator):
        raise ArgumentTypeError("generator", "must be a torch.Generator", given["generator"])
    if "prefetch_factor" in given:
        arguments.positive("prefetch_factor", given["prefetch_factor"])
    arguments.seconds("timeout", given.get("timeout", 0))
    for name in () if num_workers else _NEED_WORKERS:
        if value := given.get(name):
            raise ArgumentValueError(name, "needs workers", value, hint="set num_workers, or leave it out")


def checked_workers(
    workers: str, num_workers: int, options: Mapping[str, Any], *, seed_draws: bool
) -> WorkerKind:
    """Takes what workers are, where nothing asks for what these cannot do.

    Raises:
        ArgumentTypeError: no text.
        ArgumentValueError: another word, or a negative number; or threads, and what only processes can do.
    """
    if num_workers < 0:
        raise ArgumentValueError("num_workers", "must not be negative", num_workers)
    checked = cast("WorkerKind", arguments.choice("workers", workers, get_args(WorkerKind)))
    if checked == "threads" and num_workers and seed_draws:
        raise ArgumentValueError(
            "seed_draws",
            "would seed generators that all threads of this process share",
            True,
            hint='draw from samplerkit.draw_rng() and leave it out, or say workers="processes"',
        )
    if checked == "threads" and options.get("multiprocessing_context") is not None:
        value = options["multiprocessing_context"]
        hint = 'leave it out, or say workers="processes"'
        raise ArgumentValueError("multiprocessing_context", "is for processes", value, hint=hint)
    return checked


def checked_tail(tail: str, batch_size: int | None, batches: Any) -> Tail:
    """Takes a tail, where batches have one size or else are made by a recipe.

    Raises:
        ArgumentTypeError: the tail is no text.
        ArgumentValueError: the tail is not known, or is one of batches where none are given, or where they
            must stay whole; or `batch_size` and `batches` are both given, or neither.
    """
    checked = cast("Tail", arguments.choice("tail", tail, get_args(Tail)))
    if (batch_size is None) == (batches is None):
        hint = "say batch_size= for batches of one size, or batches= for those of a recipe"
        raise ArgumentValueError("batch_size", "or batches must be said, and not both", batch_size, hint=hint)
    if tail == "split" and batches is None:
        hint = 'say "ragged": there each sample comes once'
        raise ArgumentValueError("tail", "splits batches of a recipe, and none is given", tail, hint=hint)
    if tail == "split" and isinstance(batches, BatchRecipe) and not batches.can_be_split:
        hint = 'say "pad" or "drop"'
        raise ArgumentValueError("tail", "splits batches, and these must stay whole", tail, hint=hint)
    return checked
