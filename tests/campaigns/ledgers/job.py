"""The ranks of a job in one process, in lock step, compared with a model of them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import samplerkit as sk
from tests.campaigns.ledgers.batched import BatchedRecipe
from tests.campaigns.ledgers.chains import Recipe
from tests.campaigns.ledgers.counted import Ledger
from tests.campaigns.ledgers.model import Got, Model, Place, require


@dataclass(frozen=True)
class Setting:
    """The settings that may change at a resume."""

    ranks: int
    options: dict[str, Any]
    after_break: str
    run_ahead: bool
    device: str | None
    threads: bool
    expecting: bool
    workers: int
    persistent: bool

    def loader(self, recipe: Recipe | BatchedRecipe, tail: str, rank: int) -> Any:
        """Makes the loader of one rank."""
        workers = {"num_workers": self.workers, "persistent_workers": self.persistent} if self.workers else {}
        loader = sk.Loader(
            recipe.dataset(expecting=self.expecting),
            recipe.sampler(self.ranks, rank),
            tail=tail,
            world=sk.World(self.ranks, rank),
            after_break=self.after_break,
            run_ahead=self.run_ahead,
            device="cpu" if self.device == "argument" else None,
            **{**workers, **self.options},
        )
        if self.device != "loader":
            return loader
        return sk.DeviceLoader(loader, "cpu", run_ahead=self.run_ahead)


@dataclass(frozen=True)
class Saved:
    """A state, with its place, the samples received before it in its epoch, and in all."""

    text: str
    place: Place
    received: list[Any]
    log: list[Any]
    edits: tuple[sk.Edit, ...]


def require_history(history: Any, size: int, log: list[Any]) -> None:
    """A history of a dataset of a size holds what the loops received, unit by unit, in their order."""
    require(history.is_complete, "the history is not complete")
    epochs = history.epochs_of(range(len(history))).tolist()
    counts = Counter(history[:].tolist())
    require(history.count([*counts]).tolist() == [*counts.values()], f"{counts} are not counted")
    require(history.unread()[:].tolist() == [id for id in range(size) if id not in counts], "some are unread")
    for at in range(0, len(history), 17):
        require(at in history.positions_of(history[at]), f"position {at} is not found by its id")
        require(history.up_to(at)[:].tolist() == history[:at].tolist(), f"it is another one up to {at}")
    read = zip(epochs, history[:].tolist(), strict=True)
    for epoch, unit in log:
        ids = [part[0] for part in unit] if isinstance(unit, tuple) else [unit]
        listed = sorted(islice(read, len(ids)))
        require(listed == [(epoch, id) for id in ids], f"{ids} of epoch {epoch} was read, not {listed}")
    require(next(read, None) is None, "the history has more than was read")


class Job:
    """Calls the loaders of all ranks as a training script may, and compares them with the model.

    Args:
        recipe: the dataset and the chain.
        tail: the loaders' tail.
        setting: the first one.
        ledger: counts the received samples.
    """

    def __init__(self, recipe: Recipe | BatchedRecipe, tail: str, setting: Setting, ledger: Ledger) -> None:
        self._recipe, self._tail = recipe, tail
        self.model = Model(cache(recipe.order), tail, ledger)
        self._loaders: list[Any] = []
        self.start(setting, ())

    def start(self, setting: Setting, edits: tuple[sk.Edit, ...], *, closes: bool = True) -> None:
        """Starts a job with new loaders; the ones before are closed or dropped."""
        if closes:
            self.end()
        self._take_edits(edits)
        self.setting = setting
        self._loaders = [setting.loader(self._recipe, self._tail, rank) for rank in range(setting.ranks)]
        self._iterators: list[Any] = []
        self._ended: list[Any] = []
        self.model.start(setting.ranks, setting.options.get("batch_size", 1), setting.after_break)

    def _take_edits(self, edits: tuple[sk.Edit, ...]) -> None:
        self.edits = edits
        if self._recipe.can_be_edited:
            self._recipe = self._recipe.edited(edits)
            self.model.order_of = cache(self._recipe.order)

    def edit(self, further: int, **changes: Any) -> None:
        """Edits the run, `further` positions after the first that no rank has requested."""
        at = max(loader.editable_from for loader in self._loaders) + further
        at = max([at, *(edit.at for edit in self.edits)])
        for loader in self._loaders:
            # Not every order supports every edit: then each rank raises an error, and continues unchanged.
            with contextlib.suppress(sk.ArgumentValueError, sk.ArgumentRangeError, sk.NotSupportedError):
                loader.edit(at=at, **changes)
        self._take_edits(self._loaders[0].sampler.edits)
        self.check()

    def end(self) -> None:
        """Closes all loaders."""
        for loader in self._loaders:
            loader.close()

    def read(self, steps: int, *, set_epoch: int | None = None, again: bool = False) -> None:
        """Reads some steps, or fewer at the end.

        Args:
            steps: how many.
            set_epoch: is set after the iterators were made and before their first batch.
            again: whether iterators are made during an iteration, which they end.
        """
        if again or not self.model.is_live:
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
                of_ranks = list(pool.map(lambda rank: list(self._request(rank, steps)), ranks))
            for step in range(max(map(len, of_ranks))):
                self._compare([of_rank[step] for of_rank in of_ranks if step < len(of_rank)])
            return
        for _ in range(steps):
            if self.model.is_live:
                self._compare([got for rank in ranks for got in self._request(rank, 1)])

    def _request(self, rank: int, steps: int) -> Iterator[Got]:
        """Reads steps on one rank, until there are no more."""
        loader = self._loaders[rank]
        for _ in range(steps):
            if self._iterators[rank] is None:
                return
            batch = next(self._iterators[rank], None)
            if batch is None:
                self._iterators[rank] = None
                yield Got(None, loader.state_dict())
                return
            yield self._recipe.got(loader, batch, loader.state_dict())

    def _compare(self, of_ranks: list[Got]) -> None:
        tokens = [got.tokens for got in of_ranks if got.tokens is not None]
        read = sum(count for _, count in tokens)
        require(
            all(count == read for count, _ in tokens), f"the ranks report {tokens} tokens, and read {read}"
        )
        self.model.take([got.batch for got in of_ranks])
        self.model.check_states([got.state for got in of_ranks])

    def leave(self, how: str) -> None:
        """Leaves the current iteration in one of four ways, or does the same without an iteration."""
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
        self.check()

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch on all ranks."""
        for loader in self._loaders:
            loader.set_epoch(epoch)
        self.model.set_epoch(epoch)

    def check(self) -> None:
        """Checks the states and the history of the ranks, without a change."""
        self.model.check_states([loader.state_dict() for loader in self._loaders])
        self._require_history(self._one.history(), self.model.log)
        if not self.model.is_live:
            epochs = [loader.epoch for loader in self._loaders]
            require(
                set(epochs) == {self.model.epoch}, f"the ranks are at epochs {epochs}, not {self.model.epoch}"
            )

    def use_ended_iterators(self) -> None:
        """Reads from ended iterators: they raise an error, and nothing else changes."""
        ended, self._ended = self._ended, []
        for iterator in ended:
            try:
                batch = next(iterator)
            except sk.StateError:
                continue
            require(False, f"an iterator that was ended gave {batch}")
        self.check()

    def save(self, step: int | None = None) -> Saved:
        """Saves the state after the delivered steps, or after the given number."""
        model = self.model
        steps = model.done if step is None else min(step, model.steps)
        if step is None:
            states = [loader.state_dict() for loader in self._loaders]
        else:
            states = [loader.state_dict(step=steps) for loader in self._in_the_epoch]
        model.check_states(states, steps)
        expected = model.place_after(steps), model.received_after(steps), model.log_after(steps)
        saved = Saved(json.dumps(states[0]), *expected, self.edits)
        self._require_history(self._one.history(states[0]), saved.log)
        return saved

    def check_history_since(self, states: list[Saved]) -> None:
        """Checks the samples read since each state that is in the past of this job."""
        log = self.model.log
        for saved in states:
            if saved.log == log[: len(saved.log)]:
                since = self._one.history().since(json.loads(saved.text))
                self._require_history(since, log[len(saved.log) :])

    def _require_history(self, history: Any, log: list[Any]) -> None:
        require_history(history, len(self._one.dataset), log)

    @property
    def _one(self) -> Any:
        return getattr(self._loaders[0], "loader", self._loaders[0])

    @property
    def _in_the_epoch(self) -> list[Any]:
        """The loaders whose loop has not seen the end of the epoch: the others count steps of the next."""
        loaders = [getattr(loader, "loader", loader) for loader in self._loaders]
        if not self.model.is_live:
            return loaders
        return [
            loader for loader, iterator in zip(loaders, self._iterators, strict=True) if iterator is not None
        ]

    def request_missing_states(self, step: int) -> None:
        """Requests the state after steps that the epoch does not have: each rank raises an error."""
        for loader in self._in_the_epoch:
            try:
                state = loader.state_dict(step=step)
            except sk.SamplerkitError:
                continue
            require(False, f"there is no step {step} of {self.model.steps}, but a state: {state}")

    def load(self, saved: Saved) -> None:
        """Loads a state on all ranks, unless an iteration is running: then they raise an error."""
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
            self.model.load(saved.place, saved.received, saved.log)
            self.check_history_since([saved])
        self.check()
