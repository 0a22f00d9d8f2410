"""The ranks of a job in one process, in lock step, compared with a model of them."""

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
from tests.campaigns.ledgers.model import Model, Place, StepResult, require


@dataclass(frozen=True)
class Setting:
    """Settings that may change after a resume."""

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
    """A state, with its place, and the samples received before it in its epoch and in all."""

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
        reported = sorted(islice(read, len(ids)))
        require(reported == [(epoch, id) for id in ids], f"{ids} of epoch {epoch} was read, not {reported}")
    require(next(read, None) is None, "the history has more samples than were read")


class Job:
    """Does to the loaders of all ranks what a training script may do, and compares.

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
        """Starts a job: all loaders are new, those of before are closed or dropped."""
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

    def edit(self, further: int, **change: Any) -> None:
        """Edits the run from a position on, so far after the first that no rank has requested."""
        at = max(loader.editable_from for loader in self._loaders) + further
        at = max([at, *(edit.at for edit in self.edits)])
        for loader in self._loaders:
            # Not every order can be edited in every way: each rank raises, and continues unchanged.
            with contextlib.suppress(sk.ArgumentValueError, sk.ArgumentRangeError, sk.NotSupportedError):
                loader.edit(at=at, **change)
        self._take_edits(self._loaders[0].sampler.edits)
        self.check()

    def end(self) -> None:
        """Closes all loaders."""
        for loader in self._loaders:
            loader.close()

    def read(self, steps: int, *, set_epoch: int | None = None, restart: bool = False) -> None:
        """Reads some steps, or all that remain.

        Args:
            steps: how many.
            set_epoch: set between making the iterators and their first batch.
            restart: whether iterators are made although an iteration is under way, which they end.
        """
        if restart or not self.model.is_live:
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
                of_ranks = list(pool.map(lambda rank: list(self._read_rank(rank, steps)), ranks))
            for step in range(max(map(len, of_ranks))):
                self._compare([of_rank[step] for of_rank in of_ranks if step < len(of_rank)])
            return
        for _ in range(steps):
            if self.model.is_live:
                self._compare([result for rank in ranks for result in self._read_rank(rank, 1)])

    def _read_rank(self, rank: int, steps: int) -> Iterator[StepResult]:
        """Reads steps on one rank, until there are no more."""
        loader = self._loaders[rank]
        for _ in range(steps):
            if self._iterators[rank] is None:
                return
            batch = next(self._iterators[rank], None)
            if batch is None:
                self._iterators[rank] = None
                yield StepResult(None, loader.state_dict())
                return
            yield self._recipe.step_result(loader, batch, loader.state_dict())

    def _compare(self, of_ranks: list[StepResult]) -> None:
        tokens = [result.tokens for result in of_ranks if result.tokens is not None]
        read = sum(count for _, count in tokens)
        require(
            all(total == read for total, _ in tokens), f"the ranks report {tokens} tokens, and read {read}"
        )
        self.model.take([result.batch for result in of_ranks])
        self.model.check_states([result.state for result in of_ranks])

    def leave(self, how: str) -> None:
        """Leaves the iteration under way in one of four ways, or does the same without one."""
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
        """Checks the ranks without changing anything."""
        self.model.check_states([loader.state_dict() for loader in self._loaders])
        self._require_history(self._first_loader.history(), self.model.log)
        if not self.model.is_live:
            epochs = [loader.epoch for loader in self._loaders]
            require(
                set(epochs) == {self.model.epoch}, f"the ranks are at epochs {epochs}, not {self.model.epoch}"
            )

    def use_ended_iterators(self) -> None:
        """Requests more of iterators that were ended: they raise, and nothing else changes."""
        ended, self._ended = self._ended, []
        for iterator in ended:
            try:
                batch = next(iterator)
            except sk.StateError:
                continue
            require(False, f"an iterator that was ended gave {batch}")
        self.check()

    def save(self, step: int | None = None) -> Saved:
        """Saves the state after the steps that were handed out, or after `step` of them."""
        model = self.model
        steps = model.done if step is None else min(step, model.steps)
        if step is None:
            states = [loader.state_dict() for loader in self._loaders]
        else:
            states = [loader.state_dict(step=steps) for loader in self._in_the_epoch]
        model.check_states(states, steps)
        values = model.place_at(steps), model.received_after(steps), model.log_after(steps)
        saved = Saved(json.dumps(states[0]), *values, self.edits)
        self._require_history(self._first_loader.history(states[0]), saved.log)
        return saved

    def check_histories_since(self, states: list[Saved]) -> None:
        """Checks the history since each state that is in the past of this job."""
        log = self.model.log
        for saved in states:
            if saved.log == log[: len(saved.log)]:
                since = self._first_loader.history().since(json.loads(saved.text))
                self._require_history(since, log[len(saved.log) :])

    def _require_history(self, history: Any, log: list[Any]) -> None:
        require_history(history, len(self._first_loader.dataset), log)

    @property
    def _first_loader(self) -> Any:
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
        """Requests the state after steps that the epoch does not have: each rank raises."""
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
            self.model.load(saved.place, saved.received, saved.log)
            self.check_histories_since([saved])
        self.check()
