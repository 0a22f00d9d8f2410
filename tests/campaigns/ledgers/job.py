"""The ranks of a job in one process, in lock step and beside a model of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import samplerkit as sk
from tests.campaigns.ledgers.chains import Recipe
from tests.campaigns.ledgers.counted import Ledger
from tests.campaigns.ledgers.model import Model, Place, require


class Numbers:
    """Sample i is (the epoch that the reading process was told, i)."""

    def __init__(self, sizes: int | list[int]) -> None:
        if isinstance(sizes, list):
            self.layout = sk.Layout(sizes)
        self._size = sum(sizes) if isinstance(sizes, list) else sizes
        self._epoch: int | None = None

    def __len__(self) -> int:
        return self._size

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __getitem__(self, index: int) -> tuple[int | None, int]:
        return self._epoch, index


class Expecting(Numbers):
    """Reads whole batches, and only those that it was told to expect."""

    def expect(self, batches: Iterator[Any]) -> None:
        self._expected = batches

    def __getitems__(self, ids: Any) -> list[tuple[int | None, int]]:
        expected = next(self._expected).tolist()
        require(ids.tolist() == expected, f"{expected} were to be expected, and {ids.tolist()} are asked for")
        return [self[index] for index in expected]


@dataclass(frozen=True)
class Setting:
    """What may be another one after a resume."""

    ranks: int
    batch_size: int
    after_break: str
    run_ahead: bool
    device: str | None
    threads: bool
    expecting: bool
    workers: int
    persistent: bool

    def loader(self, recipe: Recipe, tail: str, rank: int) -> Any:
        """Makes the loader of one rank."""
        persistent = {"persistent_workers": self.persistent} if self.workers else {}
        loader = sk.Loader(
            (Expecting if self.expecting else Numbers)(recipe.sizes),
            recipe.sampler(self.ranks, rank),
            batch_size=self.batch_size,
            num_workers=self.workers,
            tail=tail,
            world=sk.World(self.ranks, rank),
            after_break=self.after_break,
            run_ahead=self.run_ahead,
            device="cpu" if self.device == "argument" else None,
            collate_fn=list,
            **persistent,
        )
        if self.device != "loader":
            return loader
        return sk.DeviceLoader(loader, "cpu", run_ahead=self.run_ahead)


@dataclass(frozen=True)
class Saved:
    """A state, with where it stands and what was received of its epoch before."""

    text: str
    place: Place
    received: list[Any]


@dataclass(frozen=True)
class Got:
    """What one rank got when it asked: samples with a mark for pads, or None at the end; and its state."""

    batch: tuple[list[Any], list[bool]] | None
    state: dict[str, Any]


class Job:
    """Does to the loaders of all ranks what a training script may do, and compares.

    Args:
        recipe: the dataset and the chain.
        tail: the loaders' tail.
        setting: the first one.
        ledger: where what was received is counted.
    """

    def __init__(self, recipe: Recipe, tail: str, setting: Setting, ledger: Ledger) -> None:
        self._recipe, self._tail = recipe, tail
        self._orders: dict[int, list[int]] = {}
        self.model = Model(self._order_of, tail, ledger)
        self._loaders: list[Any] = []
        self.start(setting)

    def _order_of(self, epoch: int) -> list[int]:
        if epoch not in self._orders:
            order = self._orders[epoch] = self._recipe.order(epoch)
            flaw = self._recipe.content.flaw(order)
            require(flaw is None, f"epoch {epoch}: {flaw}")
        return self._orders[epoch]

    def start(self, setting: Setting, *, closes: bool = True) -> None:
        """Starts a job: all loaders are new, those of before are closed or dropped."""
        if closes:
            self.end()
        self.setting = setting
        self._loaders = [setting.loader(self._recipe, self._tail, rank) for rank in range(setting.ranks)]
        self._iterators: list[Any] = []
        self._ended: list[Any] = []
        self.model.start(setting.ranks, setting.batch_size, setting.after_break)

    def end(self) -> None:
        """Closes all loaders, whatever they are at."""
        for loader in self._loaders:
            loader.close()

    def read(self, steps: int, *, set_epoch: int | None = None, anew: bool = False) -> None:
        """Reads some steps, or what there is.

        Args:
            steps: how many.
            set_epoch: what is said between asking for iterators and their first batch.
            anew: whether iterators are asked for although an iteration is under way, which they end.
        """
        if anew or not self.model.is_live:
            iterators = [iter(loader) for loader in self._loaders]
            if set_epoch is not None:
                self.set_epoch(set_epoch)
            if self.model.is_live:
                self._ended += filter(None, self._iterators)
            self._iterators = iterators
            self.model.begin()
        ranks = range(self.setting.ranks)
        if self.setting.threads:
            with ThreadPoolExecutor(self.setting.ranks) as pool:
                of_ranks = list(pool.map(lambda rank: list(self._ask(rank, steps)), ranks))
            for step in range(max(map(len, of_ranks))):
                self._compare([of_rank[step] for of_rank in of_ranks if step < len(of_rank)])
            return
        for _ in range(steps):
            if self.model.is_live:
                self._compare([got for rank in ranks for got in self._ask(rank, 1)])

    def _ask(self, rank: int, steps: int) -> Iterator[Got]:
        """Lets one rank ask for steps, until it is told that there are no more."""
        loader = self._loaders[rank]
        for _ in range(steps):
            if self._iterators[rank] is None:
                return
            batch = next(self._iterators[rank], None)
            if batch is None:
                self._iterators[rank] = None
                yield Got(None, loader.state_dict())
                return
            last = loader.step - 1
            ids = loader.ids(last).tolist()
            require([index for _, index in batch] == ids, f"rank {rank} got {batch} and names {ids}")
            yield Got((batch, loader.pads(last).tolist()), loader.state_dict())

    def _compare(self, of_ranks: list[Got]) -> None:
        self.model.take([got.batch for got in of_ranks])
        self.model.check_states([got.state for got in of_ranks])

    def leave(self, how: str) -> None:
        """Leaves the iteration under way in one of four ways, or does the same while there is none."""
        if how == "close the loaders":
            self.end()
            self._ended += filter(None, self._iterators)
        while self._iterators:
            iterator = self._iterators.pop()
            if iterator is not None and how == "close the iterators":
                iterator.close()
            elif iterator is not None and how == "raise in the loop":
                with contextlib.suppress(KeyboardInterrupt):
                    iterator.throw(KeyboardInterrupt())
            del iterator
        if self.model.is_live:
            self.model.leave()
        self.look()

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch on all ranks."""
        for loader in self._loaders:
            loader.set_epoch(epoch)
        self.model.set_epoch(epoch)

    def look(self) -> None:
        """Looks at the ranks without changing anything."""
        self.model.check_states([loader.state_dict() for loader in self._loaders])
        if not self.model.is_live:
            epochs = [loader.epoch for loader in self._loaders]
            require(
                set(epochs) == {self.model.epoch}, f"the ranks are at epochs {epochs}, not {self.model.epoch}"
            )

    def use_what_has_ended(self) -> None:
        """Asks iterators that were ended for more: they refuse, and nothing else changes."""
        ended, self._ended = self._ended, []
        for iterator in ended:
            try:
                batch = next(iterator)
            except sk.StateError:
                continue
            require(False, f"an iterator that was ended gave {batch}")
        self.look()

    def save(self, step: int | None = None) -> Saved:
        """Saves the state after the steps that were handed out, or after as many as are said."""
        model = self.model
        steps = model.done if step is None else min(step, model.steps)
        if step is None:
            states = [loader.state_dict() for loader in self._loaders]
        else:
            states = [loader.state_dict(step=steps) for loader in self._in_the_epoch]
        model.check_states(states, steps)
        return Saved(json.dumps(states[0]), model.stands_at(steps), model.received_after(steps))

    @property
    def _in_the_epoch(self) -> list[Any]:
        """The loaders whose loop has not seen the end of the epoch: the others count steps of the next."""
        loaders = [getattr(loader, "loader", loader) for loader in self._loaders]
        if not self.model.is_live:
            return loaders
        return [
            loader for loader, iterator in zip(loaders, self._iterators, strict=True) if iterator is not None
        ]

    def ask_for_states_that_do_not_exist(self, step: int) -> None:
        """Asks for the state after steps that the epoch does not have: each rank refuses."""
        for loader in self._in_the_epoch:
            try:
                state = loader.state_dict(step=step)
            except sk.SamplerkitError:
                continue
            require(False, f"there is no step {step} of {self.model.steps}, but a state: {state}")

    def load(self, saved: Saved) -> None:
        """Loads a state on all ranks, unless an iteration is under way: then they refuse."""
        for rank, loader in enumerate(self._loaders):
            if self._iterators and self._iterators[rank] is not None:
                try:
                    loader.load_state_dict(json.loads(saved.text))
                except sk.StateError:
                    continue
                require(False, f"rank {rank} loaded a state in the middle of an iteration")
            elif not self.model.is_live:
                loader.load_state_dict(json.loads(saved.text))
        if not self.model.is_live:
            self.model.load(saved.place, saved.received)
        self.look()
