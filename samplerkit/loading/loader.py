"""The loader: a torch DataLoader with exactly-once state on top."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Literal, final, get_args

import numpy as np
import torch
import torch.utils.data

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, OutOfDatasetError, StateError
from samplerkit.loading.agreement import job_agreement
from samplerkit.loading.delivery import Delivery, Tail
from samplerkit.loading.identity import seeds_of
from samplerkit.loading.request import Request, RequestedDataset, is_pad
from samplerkit.loading.run import Run
from samplerkit.loading.state import State
from samplerkit.loading.watch import Watched
from samplerkit.loading.worker import end_with_parent
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids
from samplerkit.order.world import World
from samplerkit.samplers import arguments
from samplerkit.samplers.base import Sampler

EVALUATED_AT_ONCE = 8192
"""Ids of requests that are computed in one go."""

REFUSED = {
    "shuffle": "give the sampler a shuffle mode",
    "batch_sampler": "say batch_size; the loader makes the batches",
}
"""Options of a DataLoader that a loader does not take, and what to do in place of them."""


@final
class Loader:
    """Reads a dataset in the order of a sampler, and always knows exactly which samples it has handed out.

    The loader deals the sampler's undealt order to the ranks of the job, whether a distributed sampler is in
    the chain or not. A batch counts as consumed when it is handed to the loop, not when it is prefetched.

    Iterating reads the rest of the current epoch, then moves on to the next one. After an early break, the
    next iteration begins the epoch anew, or goes on where it stopped: see `after_break`.

    Args:
        dataset: a map-style dataset. If it has `__getitems__`, it gets the ids of a batch as an int64 array.
        sampler: the recipe.
        batch_size: samples a rank and step.
        num_workers: worker processes.
        tail: what becomes of the last samples, which do not fill a global batch. `pad`: repeat the first ones
            of the order, so that all ranks get the same number of samples. `drop`: leave them out. `ragged`:
            hand out each once, so that ranks differ by at most one sample.
        world: which rank of how many this process is; None asks the running job at first use. For every
            process to read everything, say World(1, 0).
        after_break: `restart` begins the epoch anew when iteration is left early, as torch does; `continue`
            goes on with what was not handed out.
        agreement_seconds: how long the ranks of a job wait for one another, when an iteration begins, to see
            that they read by the same order.
        dataloader_options: options of `torch.utils.data.DataLoader`; `drop_last=True` means `tail="drop"`.

    Raises:
        ArgumentTypeError: an argument has the wrong type, or the dataset is iterable-style.
        ArgumentValueError: `shuffle` or `batch_sampler` is given, `tail` is not known, or `num_workers`
            is negative.
        ArgumentRangeError: `batch_size` is not positive.

    Example:
        >>> import samplerkit as sk
        >>> dataset = list(range(100, 107))
        >>> loader = sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=3)
        >>> first = next(iter(loader)).tolist()
        >>> state = loader.state_dict()
        >>> resumed = sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=2)
        >>> resumed.load_state_dict(state)
        >>> rest = [id for batch in resumed for id in batch.tolist()]
        >>> sorted(first + rest) == dataset
        True
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Sampler,
        *,
        batch_size: int,
        num_workers: int = 0,
        tail: Tail = "pad",
        world: World | None = None,
        after_break: Literal["restart", "continue"] = "restart",
        agreement_seconds: float = 10.0,
        **dataloader_options: Any,
    ) -> None:
        if isinstance(dataset, torch.utils.data.IterableDataset):
            raise ArgumentTypeError("dataset", "must be map-style, with __getitem__", dataset)
        for option, mend in REFUSED.items():
            if dataloader_options.pop(option, None) is not None:
                raise ArgumentValueError(option, "is decided by the sampler", option, mend=mend)
        self._run: Final = Run(sampler, dataset, world)
        drops = arguments.boolean("drop_last", dataloader_options.pop("drop_last", False))
        self.dataset: Final = dataset
        self.sampler: Final = sampler
        self.batch_size: Final = arguments.positive("batch_size", batch_size)
        self.num_workers: Final = arguments.integer("num_workers", num_workers)
        if self.num_workers < 0:
            raise ArgumentValueError("num_workers", "must not be negative", num_workers)
        named: Any = arguments.choice("tail", tail, get_args(Tail))
        self.tail: Final[Tail] = "drop" if drops else named
        self._after_break = arguments.choice("after_break", after_break, ("restart", "continue"))
        self._options = dataloader_options
        self._agreement_seconds = agreement_seconds
        self._dataloader: torch.utils.data.DataLoader[Any] | None = None
        self._iteration: object | None = None
        self._watched: Watched | None = None
        self._next_epoch: int | None = None
        self._epoch = 0
        self._start = 0
        self._delivered = 0

    @property
    def epoch(self) -> int:
        """The current epoch: the one being read, or the one that the next iteration reads."""
        return self._epoch

    @property
    def world(self) -> World:
        """Which rank of how many this process is; the running job is asked once."""
        return self._run.world

    @property
    def order(self) -> Order:
        """The undealt order of the current epoch."""
        return self._run.undealt(self._epoch)

    @property
    def batch_sampler(self) -> Loader:
        """This loader: where trainers look for `set_epoch`."""
        return self

    def __len__(self) -> int:
        """The number of batches in a whole epoch of this rank."""
        return self._delivery(0).steps(self.world.shard_id)

    @property
    def steps_left(self) -> int:
        """The number of batches of this rank from where this loader began the epoch."""
        return self._delivery(self._start).steps(self.world.shard_id)

    def __iter__(self) -> Iterator[Any]:
        return self._deliver()

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads.

        The current epoch keeps its position, so that a trainer may call this after a restore. While an
        iteration is under way, the epoch is set at its end.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: negative.
        """
        epoch = arguments.epoch(epoch)
        if self._iteration is not None:
            self._next_epoch = epoch
        elif epoch != self._epoch:
            self._begin_epoch(epoch)

    def ids(self, step: int) -> Ids:
        """Gives the ids of the samples that this rank reads in a step, pads included.

        Args:
            step: in [0, steps of this delivery), counted from where this loader began the epoch.

        Raises:
            OutOfDatasetError: there is no such step.
        """
        return self.order.ids_at(self._positions(step) % max(1, len(self.order)))

    def pads(self, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Tells which samples of a step repeat another one to fill the batch, so that metrics leave them out.

        Args:
            step: as for `ids`; the batch handed out last is `loader.step - 1`.

        Returns:
            bool array of shape (samples,).
        """
        return is_pad(self._positions(step), len(self.order))

    @property
    def step(self) -> int:
        """How many batches have been handed out since this loader began the epoch."""
        return self._delivered

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Gives the state after the batches handed out: JSON values, under 4 KB, on every rank the same.

        Args:
            step: ask for the state after this many batches in place of those handed out.

        Example:
            >>> import samplerkit as sk
            >>> loader = sk.Loader(range(10), sk.SequentialSampler(), batch_size=2)
            >>> loader.state_dict(step=3)["position"]
            6
        """
        return self._state(self._delivered if step is None else arguments.integer("step", step)).to_dict()

    def load_state_dict(self, state: Mapping[str, Any], allow: Collection[str] = ()) -> None:
        """Makes the next iteration begin where a saved state stands, on any number of ranks and workers.

        Args:
            state: from `state_dict`.
            allow: names of fields that may differ: "dataset", "sampler", "seed", "algorithm", "tail",
                "num_shards".

        Raises:
            StateError: the state is damaged, of a newer schema, or of another run; or an iteration is under
                way.
        """
        if self._iteration is not None:
            raise StateError(
                "state", "cannot be loaded while an iteration is under way", mend="load before iterating"
            )
        saved = self._run.restore(state, self.tail, allow)
        self._begin_epoch(saved.epoch, saved.position)

    def close(self) -> None:
        """Ends the workers. The loader can be used again; it then starts new ones."""
        self._iteration = self._dataloader = None
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _deliver(self) -> Iterator[Any]:
        iteration = self._iteration = object()
        if self._delivered:
            again = self._position(self._delivered) if self._after_break == "continue" else 0
            self._begin_epoch(self._epoch, again)
        delivery = self._delivery(self._start)
        self._require_agreement()
        watched = self._watched = Watched(iter(self._torch_loader()))
        try:
            for step in range(delivery.steps(self.world.shard_id)):
                batch = watched.next()
                self._delivered = step + 1
                yield batch
                if self._iteration is not iteration:
                    raise StateError("iteration", "was ended by a newer one or by close()")
            self._begin_epoch(self._epoch + 1 if self._next_epoch is None else self._next_epoch)
        finally:
            if self._options.get("persistent_workers"):
                watched.end()
            else:
                watched.close()
            if self._iteration is iteration:
                self._iteration = None
                if self._next_epoch is not None and self._next_epoch != self._epoch:
                    self._begin_epoch(self._next_epoch)
                self._next_epoch = None

    def _require_agreement(self) -> None:
        agreement = job_agreement() if self.world.num_shards > 1 else None
        if agreement is not None:
            identity = self._state(0).to_dict()
            del identity["checksum"]
            agreement.require({**identity, "batch_size": self.batch_size}, self._agreement_seconds)

    def _begin_epoch(self, epoch: int, position: int = 0) -> None:
        self._epoch, self._start, self._delivered = epoch, position, 0

    def _delivery(self, start: int) -> Delivery:
        deal = self.sampler.deal
        return Delivery(
            total=len(self.order),
            start=start,
            num_shards=self.world.num_shards,
            batch_size=self.batch_size,
            tail=self.tail,
            rotation=0 if deal is None else max(0, deal.offset),
            lanes=self.sampler.woven_lanes(self.dataset, self._run.constants),
        )

    def _positions(self, step: int) -> Ids:
        delivery = self._delivery(self._start)
        steps = delivery.steps(self.world.shard_id)
        if not 0 <= step < steps:
            raise OutOfDatasetError("step", f"must be in [0, {steps})", step)
        return delivery.positions(self.world.shard_id, step)

    def _position(self, delivered: int) -> int:
        return self._delivery(self._start).position_after(delivered)

    def _state(self, delivered: int) -> State:
        delivery = self._delivery(self._start)
        position = delivery.position_after(delivered)
        is_over = position >= len(self.order) or (
            self.tail == "drop" and len(self.order) - position < delivery.global_batch
        )
        is_over = is_over and (delivered > 0 or self._start > 0)
        if is_over:
            return self._run.state(self._epoch + 1, 0, self.tail)
        return self._run.state(self._epoch, position, self.tail)

    def _requests(self) -> Iterator[Request]:
        epoch, order, delivery = self._epoch, self.order, self._delivery(self._start)
        shard, steps = self.world.shard_id, delivery.steps(self.world.shard_id)
        # Several steps are evaluated at once: a call costs as much for one batch as for some thousand ids.
        block = max(1, EVALUATED_AT_ONCE // self.batch_size)
        for first in range(0, steps, block):
            chosen = range(first, min(first + block, steps))
            positions = [delivery.positions(shard, step) for step in chosen]
            ids = order.ids_at(np.concatenate(positions) % len(order))
            ends = np.cumsum([part.size for part in positions])[:-1]
            for step, batch in zip(chosen, np.split(ids, ends), strict=True):
                yield Request(epoch, step, batch)

    def _torch_loader(self) -> torch.utils.data.DataLoader[Any]:
        if self._dataloader is None:
            options = dict(self._options)
            seeds = seeds_of(self.sampler)
            self._dataloader = torch.utils.data.DataLoader(
                RequestedDataset(self.dataset, seeds[0] if seeds else 0, self.world.shard_id),
                batch_sampler=_Requests(self._requests),
                num_workers=self.num_workers,
                worker_init_fn=_WorkerStart(options.pop("worker_init_fn", None)),
                # Without one, torch draws the workers' base seed from the process-wide generator.
                generator=options.pop("generator", None) or torch.Generator(),
                **options,
            )
        return self._dataloader


class _Requests:
    """The batch sampler that torch's DataLoader iterates over."""

    def __init__(self, requests: Callable[[], Iterator[Request]]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[Any]:
        return self._requests()


class _WorkerStart:
    """What a worker process does first: ours, then the user's `worker_init_fn`."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        end_with_parent()
        if self._then is not None:
            self._then(worker)
