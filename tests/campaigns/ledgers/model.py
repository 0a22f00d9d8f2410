"""What an honest job does, from arithmetic alone. Imports nothing of samplerkit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.campaigns.ledgers.counted import Ledger

Sample = tuple[int, Any]
"""An epoch, and what a position of it is: an id, or a batch with the parts that it holds."""

Place = tuple[int, int, int | None]
"""The epoch, the position and the epoch that ended just before, as a state has them."""


class LedgerError(AssertionError):
    """What a job must not do."""


def require(holds: bool, problem: str) -> None:
    """Raises what is wrong with a job."""
    if not holds:
        raise LedgerError(problem)


class Got(NamedTuple):
    """What one rank got when it asked.

    Args:
        batch: samples with a mark for pads, or None at the end.
        state: the state after it.
        tokens: how many the step has by the loader's word, and how many this rank read, where it tells.
    """

    batch: tuple[list[Sample], list[bool]] | None
    state: dict[str, Any]
    tokens: tuple[int, int] | None = None


class Model:
    """A job in lock step: an epoch, the position at which it began to read, and the steps since.

    Args:
        order_of: gives the ids of an epoch.
        tail: the loaders' tail.
        ledger: where what was received is counted.

    Attributes:
        order_of: as given; another one where the run was edited.
        is_live: whether an iteration is under way.
        done: steps since `origin`, the position at which the job began to read.
        next_epoch: what `set_epoch` said in the middle of an iteration.
        is_told: whether the job ever set an epoch.
        log: all that the run has received up to now, in the order of its epochs, without pads.
    """

    def __init__(self, order_of: Callable[[int], list[Any]], tail: str, ledger: Ledger) -> None:
        self.order_of, self._tail, self.ledger = order_of, tail, ledger
        self.start(1, 1, "restart")

    def start(self, ranks: int, batch_size: int, after_break: str) -> None:
        """A job begins."""
        self.ranks, self._together, self._after_break = ranks, ranks * batch_size, after_break
        self.is_live, self.next_epoch, self.is_told = False, None, False
        self.log: list[Sample] = []
        self.go_to(0)

    def go_to(
        self,
        epoch: int,
        position: int = 0,
        received: Iterable[Sample] = (),
        *,
        says: Place | None = None,
        is_loaded: bool = False,
        is_spent: bool = False,
        behind: int | None = None,
    ) -> None:
        """The next iteration begins there.

        Args:
            epoch: the epoch.
            position: the position of the epoch.
            received: what was received of the epoch before.
            says: the place in a state until a step is taken; None for the one above.
            is_loaded: whether a state was loaded.
            is_spent: whether nothing of the epoch is left: a state of its end was loaded.
            behind: the epoch that ended before, also where it is this one again.
        """
        self._behind = behind
        self.epoch, self.origin, self.done = epoch, position, 0
        self._says, self._is_loaded, self._is_spent = says, is_loaded, is_spent
        self.ledger.begin(received)

    def load(self, place: Place, received: Iterable[Sample], log: list[Sample]) -> None:
        """The script loads a state."""
        epoch, position, ended = place
        self.log = [*log]
        if self.is_told and ended == self.epoch:
            self.go_to(self.epoch, says=place, is_spent=True, behind=ended)
        else:
            says = None if ended is None else place
            self.go_to(epoch, position, received, says=says, is_loaded=True, behind=ended)

    @property
    def _order(self) -> list[Any]:
        return self.order_of(self.epoch)

    @property
    def steps(self) -> int:
        """How many steps the rank that has most has from where the job began to read."""
        left = 0 if self._is_spent else len(self._order) - self.origin
        return left // self._together if self._tail == "drop" else -(-left // self._together)

    def _position(self, steps: int) -> int:
        return min(self.origin + steps * self._together, len(self._order))

    def _samples(self, first: int, end: int) -> list[Sample]:
        return [(self.epoch, index) for index in self._order[first:end]]

    def _is_over_after(self, steps: int) -> bool:
        return steps == self.steps and (steps > 0 or self.origin > 0)

    @property
    def _epoch_after(self) -> int:
        return self.epoch + 1 if self.next_epoch is None else self.next_epoch

    def stands_at(self, steps: int) -> Place:
        """The place in the state after some steps."""
        if steps == 0 and self._says is not None:
            return self._says
        if self._is_over_after(steps):
            return _beginning_of(self._epoch_after, self.epoch)
        return self.epoch, self._position(steps), None

    @property
    def _ended(self) -> int | None:
        return None if self.done or self._says is None else self._says[2]

    def received_after(self, steps: int) -> list[Sample]:
        """What counts as received in the epoch of the state after some steps, read or not."""
        if self._is_over_after(steps):
            return []
        ahead = self._samples(self._position(self.done), self._position(steps))
        return self.ledger.after(steps) + ahead

    def log_after(self, steps: int) -> list[Sample]:
        """The log of a run that stops after some steps of the epoch, read or not."""
        here, there = self._position(self.done), self._position(steps)
        return self.log[: len(self.log) - max(0, here - there)] + self._samples(here, there)

    def begin(self) -> None:
        """An iteration begins, and ends the one under way."""
        if self.is_live:
            self.leave()
        if self.done and self._after_break == "restart":
            self.go_to(self.epoch)
        elif self.done:
            self.go_to(self.epoch, self._position(self.done), self.ledger.after(self.done))
        self.is_live = True

    def take(self, batches: list[tuple[list[Sample], list[bool]] | None]) -> None:
        """The ranks that had not ended asked for the next step; each got samples and pads, or None."""
        got = [batch for batch in batches if batch is not None]
        if self.done == self.steps:
            require(not got, f"epoch {self.epoch} has {self.steps} steps from {self.origin}, and {got} came")
            self.finish()
            return
        may_end = self._tail == "ragged" and self.done == self.steps - 1 and got
        require(
            len(got) == self.ranks or bool(may_end), f"in step {self.done} only some ranks go on: {batches}"
        )
        marked = [mark for samples, pads in got for mark in zip(samples, pads, strict=True)]
        kept = Counter(sample for sample, is_pad in marked if not is_pad)
        repeats = {sample for sample, is_pad in marked if is_pad}
        due = self._samples(self._position(self.done), self._position(self.done + 1))
        wanted, allowed = Counter(due), set(self._samples(0, len(self._order)))
        if self._tail == "split" and len(due) < self.ranks:  # the last batches, of which each rank has a part
            kept, wanted, repeats, allowed = map(_parts, (kept, wanted, repeats, allowed))
        require(
            kept == wanted,
            f"step {self.done} of epoch {self.epoch} lacks {wanted - kept} and has {kept - wanted} too many",
        )
        require(not repeats or self._tail in {"pad", "split"}, f"pads {repeats} where there are none")
        require({*repeats} <= {*allowed}, f"pads {repeats} of no sample")
        self.ledger.receive(due)
        self.log += due
        self.done += 1

    def leave(self) -> None:
        """The iteration under way is left, by a break, a newer one or close()."""
        if self.done and self.done == self.steps:
            self.finish()
        elif self.next_epoch not in {None, self.epoch}:
            self.go_to(self.next_epoch)
        self.is_live, self.next_epoch = False, None

    def finish(self) -> None:
        """The epoch is over."""
        if not self._is_spent:
            end = self._position(self.steps)
            dropped = len(self._order) - end
            allowed = self._together if self._tail == "drop" else 1
            require(dropped < allowed, f"{dropped} are dropped")
            flaw = self.ledger.end(self._samples(0, end))
            require(flaw is None, f"epoch {self.epoch}: {flaw}")
        after, ended = self._epoch_after, self.epoch
        self.go_to(after, says=_beginning_of(after, ended), behind=ended)
        self.is_live, self.next_epoch = False, None

    def set_epoch(self, epoch: int) -> None:
        """The script sets an epoch."""
        self.is_told = True
        if self.is_live:
            self.next_epoch = epoch
        elif self._is_loaded and epoch == self._ended:
            self.go_to(epoch, says=self._says, is_spent=True, behind=self._ended)
        elif epoch != self.epoch or (epoch == self._ended and not self._is_spent):
            behind = None if self.done else self._behind
            self.go_to(epoch, says=_beginning_of(epoch, behind), behind=behind)

    def check_states(self, states: list[dict[str, Any]], steps: int | None = None) -> None:
        """Compares the states of the ranks with one another and with where the job stands."""
        wanted = self.stands_at(self.done if steps is None else steps)
        stand = [(state["epoch"], state["position"], state["ended"]) for state in states]
        require(set(stand) <= {wanted}, f"the states of the ranks are {stand} and not all {wanted}")
        require(all(state == states[0] for state in states), f"the ranks have different states: {states}")


def _parts(batches: Iterable[Sample]) -> Counter[Sample]:
    every = batches.elements() if isinstance(batches, Counter) else batches
    return Counter((epoch, part) for epoch, batch in every for part in batch)


def _beginning_of(epoch: int, ended: int | None) -> Place:
    return epoch, 0, None if ended == epoch else ended
