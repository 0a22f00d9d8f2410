"""What a correct job does, from arithmetic alone. Imports nothing of samplerkit."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.campaigns.ledgers.counted import Ledger

Sample = tuple[int, Any]
"""An epoch, and the unit at a position of it: an id, or a batch with its parts."""

Place = tuple[int, int, int | None]
"""The epoch, the position and the epoch that ended just before, as a state has them."""


class LedgerError(AssertionError):
    """An error of a job."""


def require(holds: bool, problem: str) -> None:
    """Raises an error of a job."""
    if not holds:
        raise LedgerError(problem)


class StepResult(NamedTuple):
    """The result of a step on one rank.

    Args:
        batch: samples with a mark for pads, or None at the end.
        state: the state after it.
        tokens: how many the step has according to the loader, and how many this rank read, if counted.
    """

    batch: tuple[list[Sample], list[bool]] | None
    state: dict[str, Any]
    tokens: tuple[int, int] | None = None


class Model:
    """A job in lock step: an epoch, the position at which it began to read, and the steps since.

    Args:
        order_of: returns the ids of an epoch.
        tail: the loaders' tail.
        ledger: counts the received samples.

    Attributes:
        order_of: as given; another one after an edit.
        is_live: whether an iteration is under way.
        done: steps since `origin`, the position at which the job began to read.
        next_epoch: the epoch that was set in the middle of an iteration.
        has_set_epoch: whether the job ever set an epoch.
        log: all that the run has received up to now, in the order of its epochs, without pads.
    """

    def __init__(self, order_of: Callable[[int], list[Any]], tail: str, ledger: Ledger) -> None:
        self.order_of, self._tail, self.ledger = order_of, tail, ledger
        self.start(1, 1, "restart")

    def start(self, ranks: int, batch_size: int, after_break: str) -> None:
        """A job begins."""
        self.ranks, self._together, self._after_break = ranks, ranks * batch_size, after_break
        self.is_live, self.next_epoch, self.has_set_epoch = False, None, False
        self.log: list[Sample] = []
        self.go_to(0)

    def go_to(
        self,
        epoch: int,
        position: int = 0,
        received: Iterable[Sample] = (),
        *,
        reported: Place | None = None,
        is_loaded: bool = False,
        is_spent: bool = False,
        ended_before: int | None = None,
    ) -> None:
        """The next iteration begins there.

        Args:
            epoch: the epoch.
            position: the position of the epoch.
            received: the samples of the epoch that were received before.
            reported: the place in a state until a step is taken; None for `epoch` and `position`.
            is_loaded: whether a state was loaded.
            is_spent: whether the epoch is finished: a state of its end was loaded.
            ended_before: the epoch that ended before, also if it is this one again.
        """
        self._ended_before = ended_before
        self.epoch, self.origin, self.done = epoch, position, 0
        self._reported, self._is_loaded, self._is_spent = reported, is_loaded, is_spent
        self.ledger.begin(received)

    def load(self, place: Place, received: Iterable[Sample], log: list[Sample]) -> None:
        """The script loads a state."""
        epoch, position, ended = place
        self.log = [*log]
        if self.has_set_epoch and ended == self.epoch:
            self.go_to(self.epoch, reported=place, is_spent=True, ended_before=ended)
        else:
            reported = None if ended is None else place
            self.go_to(epoch, position, received, reported=reported, is_loaded=True, ended_before=ended)

    @property
    def _order(self) -> list[Any]:
        return self.order_of(self.epoch)

    @property
    def steps(self) -> int:
        """The most steps of a rank from where the job began to read."""
        remaining = 0 if self._is_spent else len(self._order) - self.origin
        return remaining // self._together if self._tail == "drop" else -(-remaining // self._together)

    def _position(self, steps: int) -> int:
        return min(self.origin + steps * self._together, len(self._order))

    def _samples(self, first: int, end: int) -> list[Sample]:
        return [(self.epoch, index) for index in self._order[first:end]]

    def _is_over_after(self, steps: int) -> bool:
        return steps == self.steps and (steps > 0 or self.origin > 0)

    @property
    def _epoch_after(self) -> int:
        return self.epoch + 1 if self.next_epoch is None else self.next_epoch

    def place_at(self, steps: int) -> Place:
        """The place in the state after some steps."""
        if steps == 0 and self._reported is not None:
            return self._reported
        if self._is_over_after(steps):
            return _beginning_of(self._epoch_after, self.epoch)
        return self.epoch, self._position(steps), None

    @property
    def _ended(self) -> int | None:
        return None if self.done or self._reported is None else self._reported[2]

    def received_after(self, steps: int) -> list[Sample]:
        """The received samples of the epoch of the state after some steps, read or not."""
        if self._is_over_after(steps):
            return []
        ahead = self._samples(self._position(self.done), self._position(steps))
        return self.ledger.after(steps) + ahead

    def log_after(self, steps: int) -> list[Sample]:
        """The log of a run that stops after some steps of the epoch, read or not."""
        current, target = self._position(self.done), self._position(steps)
        return self.log[: len(self.log) - max(0, current - target)] + self._samples(current, target)

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
        """The ranks that had not ended requested the next step; each got samples and pads, or None."""
        got = [batch for batch in batches if batch is not None]
        if self.done == self.steps:
            require(not got, f"epoch {self.epoch} has {self.steps} steps from {self.origin}, and {got} came")
            self.finish()
            return
        may_end = self._tail == "ragged" and self.done == self.steps - 1 and got
        require(len(got) == self.ranks or bool(may_end), f"in step {self.done} some ranks end: {batches}")
        marked = [mark for samples, pads in got for mark in zip(samples, pads, strict=True)]
        read = Counter(sample for sample, is_pad in marked if not is_pad)
        repeats = {sample for sample, is_pad in marked if is_pad}
        due = self._samples(self._position(self.done), self._position(self.done + 1))
        expected, allowed = Counter(due), set(self._samples(0, len(self._order)))
        if self._tail == "split" and len(due) < self.ranks:  # the last batches, of which each rank has a part
            read, expected, repeats, allowed = map(_parts, (read, expected, repeats, allowed))
        require(
            read == expected,
            f"step {self.done} of epoch {self.epoch} lacks {expected - read}, extra {read - expected}",
        )
        require(not repeats or self._tail in {"pad", "split"}, f"pads {repeats} with a tail without pads")
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
        self.go_to(after, reported=_beginning_of(after, ended), ended_before=ended)
        self.is_live, self.next_epoch = False, None

    def set_epoch(self, epoch: int) -> None:
        """The script sets an epoch."""
        self.has_set_epoch = True
        if self.is_live:
            self.next_epoch = epoch
        elif self._is_loaded and epoch == self._ended:
            self.go_to(epoch, reported=self._reported, is_spent=True, ended_before=self._ended)
        elif epoch != self.epoch or (epoch == self._ended and not self._is_spent):
            ended_before = None if self.done else self._ended_before
            self.go_to(epoch, reported=_beginning_of(epoch, ended_before), ended_before=ended_before)

    def check_states(self, states: list[dict[str, Any]], steps: int | None = None) -> None:
        """Compares the states of the ranks with one another and with the place of the job."""
        expected = self.place_at(self.done if steps is None else steps)
        places = [(state["epoch"], state["position"], state["ended"]) for state in states]
        require(set(places) <= {expected}, f"the states of the ranks are {places} and not all {expected}")
        require(all(state == states[0] for state in states), f"the ranks have different states: {states}")


def _parts(batches: Iterable[Sample]) -> Counter[Sample]:
    every = batches.elements() if isinstance(batches, Counter) else batches
    return Counter((epoch, part) for epoch, batch in every for part in batch)


def _beginning_of(epoch: int, ended: int | None) -> Place:
    return epoch, 0, None if ended == epoch else ended
