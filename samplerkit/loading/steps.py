"""Attributes of a loader for trainers, progress bars and logs: its epoch, its steps, and figures."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from importlib import import_module
from operator import length_hint
from types import SimpleNamespace
from typing import Any

import numpy as np

from samplerkit.loading.run.delivery import Reading
from samplerkit.loading.run.history import History
from samplerkit.loading.run.run_cursor import RunCursor
from samplerkit.loading.state.state import Past, Place
from samplerkit.loading.stats import LoaderStats, Received
from samplerkit.loading.world import detect_world
from samplerkit.order import arguments
from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids
from samplerkit.samplers.mixing.ledger import SourceRead, source_reads

LATEST_STEPS = 64
"""The number of latest steps over which shares and efficiency are computed."""


class CountsSteps(ABC):
    """The epoch and the steps of a loader, by its cursor: none of it needs to read anything."""

    _cursor: RunCursor
    _received: Received

    @property
    def epoch(self) -> int:
        """The current epoch: the one being read, or the one that the next iteration reads."""
        return self._cursor.epoch

    @property
    def world(self) -> World:
        """Which rank of how many this process is; taken from the running job once."""
        return self._cursor.run.world

    @property
    def order(self) -> Order:
        """The undealt order of the current epoch."""
        return self._cursor.run.epoch(self.epoch).order

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """The attribute on which trainers call `set_epoch`, or, as Lightning, on its `sampler`."""
        return SimpleNamespace(sampler=self, set_epoch=self.set_epoch)

    def __len__(self) -> int:
        """The number of batches in a whole epoch of this rank."""
        return self._reading.epoch_steps

    @property
    def remaining(self) -> int:
        """The number of batches of this rank that are not handed out yet."""
        return self._reading.steps - self.step

    @property
    def epoch_step(self) -> int:
        """The batches of the whole epoch without those that remain, for a progress bar of `len(loader)`.

        A resume does not change it. On another number of ranks it counts their steps.

        Example:
            >>> import samplerkit as sk
            >>> loader = sk.Loader(range(10), sk.SequentialSampler(), batch_size=2)
            >>> loader.load_state_dict(loader.state_dict(step=3))
            >>> [(loader.epoch_step, loader.remaining, len(loader), loader.step) for batch in loader]
            [(4, 1, 5, 1), (5, 0, 5, 2)]
        """
        return len(self) - self.remaining

    @property
    def steps_left(self) -> int:
        """The number of batches of this rank from where this loader began the epoch, read or not."""
        return self._reading.steps

    @property
    def step(self) -> int:
        """How many batches have been handed out since this loader began the epoch."""
        return self._cursor.current.taken

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads.

        The current epoch keeps its position, so that a trainer may call this after a restore. While an
        iteration is under way, the epoch is set at its end: after its last batch, where it is left early, or
        when another one begins.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: negative.
        """
        self._cursor.set_epoch(arguments.epoch(epoch))

    def ids(self, step: int) -> Ids:
        """Returns the ids of the samples that this rank reads in a step, pads included.

        Of a step that was handed out, the samples that were skipped are left out, here and in `pads`.

        Args:
            step: in [0, steps of this delivery), counted from where this loader began the epoch.

        Raises:
            OutOfDatasetError: there is no such step.
        """
        return self._received.ids(self._cursor.current, self._reading, step)

    def pads(self, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns which samples of a step repeat another one to fill the batch: metrics leave them out.

        Args:
            step: as for `ids`; the batch handed out last is `loader.step - 1`.

        Returns:
            bool array of shape (samples,).
        """
        return self._received.pads(self._cursor.current, self._reading, step)

    def tokens(self, step: int) -> int:
        """Returns the number of tokens that all ranks read in a step, without communication: for the loss.

        Ranks hold different numbers of samples and tokens. The mean of their means would weight each token by
        its batch, so a loss is the sum over the tokens of all ranks divided by this number: with DDP, which
        averages over ranks, `loss.sum() * ranks / loader.tokens(step)`. Pads count, and samples that were
        skipped. Where no lengths are known, it is the number of samples. Labels that are not trained, such as
        those of prompts, count too: where there are some, count labels and add up ranks.

        Args:
            step: as for `ids`.

        Raises:
            OutOfDatasetError: there is no such step.

        Example:
            >>> import samplerkit as sk
            >>> recipe = sk.TokenBatches(8, lengths=[4, 1, 2, 8, 3, 1, 4, 2])
            >>> ranks = [
            ...     sk.Loader(range(8), sk.RandomSampler(seed=1), batches=recipe, world=sk.World(2, rank))
            ...     for rank in range(2)
            ... ]
            >>> [[sum(recipe.lengths[id] for id in rank.ids(0)) for rank in ranks], ranks[0].tokens(0)]
            [[3, 1], 4]
        """
        return self._reading.tokens(step)

    def history(self, state: Mapping[str, Any] | None = None) -> History:
        """Returns all that the run has read, on all ranks, as an order: see `History`.

        Args:
            state: up to which; None for the batches handed out so far. The loader stays where it is.

        Raises:
            StateError: the state is damaged, or of another run.
        """
        if state is None:
            return History(self._cursor.run, self._cursor.past())
        run, saved = self._cursor.run.restored(state)
        return History(run, Past.of(saved))

    @property
    def _reading(self) -> Reading:
        """What this rank reads from where it began the epoch."""
        return self._cursor.reading_of(self._cursor.current)


class MetricsMixin(CountsSteps):
    """The figures of a loader, for a training log and for a progress bar."""

    @property
    @abstractmethod
    def stats(self) -> LoaderStats:
        """Figures of the iteration under way, or of the last one."""

    def figures(self) -> dict[str, float]:
        """Returns the figures of this rank for a training log, by name; `samplerkit.sinks` hands them on.

        - `epoch`, `position`: where the state is; `epoch_step`, `steps`: the steps of the epoch up to
          there, and in all; `epochs`: both in one number, for the axis of a curve.
        - `batches`, `seconds`, `first_wait`, `total_wait`, `longest_wait`, `waiting`, `skipped`: `stats`.
        - `ids_per_second`: samples handed out, pads included, since the iteration began.
        - `share/NAME`: the share of each part of a tree of datasets in the latest 64 steps.
        - `passes/NAME`, `tokens/NAME`: of a mixture, how often the run has read each source since its
          first epoch, on all ranks, and how many tokens of it, where the dataset has `lengths`.
        - `efficiency`: with `batches`, the part of the padded tokens of these steps that are tokens.
        - `dataset/NAME`: what the dataset reports, such as `files_read` and `bytes_read`.

        They need no reads and no communication.

        Example:
            >>> import samplerkit as sk
            >>> dataset = sk.TreeDataset({"web": range(60), "code": range(20)})
            >>> loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=8)
            >>> for batch in loader:
            ...     if loader.step == 9:
            ...         figures = loader.figures()
            >>> [figures[name] for name in ("epoch", "position", "epochs", "share/code")]
            [0, 72, 0.9, 0.16666666666666666]
        """
        stats = self.stats.to_dict()
        place, steps = self._cursor.place(), len(self)
        is_new = place.epoch != self._cursor.epoch  # the last batch was handed out
        step = 0 if is_new else self.epoch_step
        epochs = place.epoch + (step / steps if steps else 0.0)
        figures: dict[str, float] = {**stats, "epoch": place.epoch, "position": place.position}
        figures |= {"epoch_step": step, "steps": steps, "epochs": epochs}
        for name, read in self._sources_read(place).items():
            figures[f"passes/{name}"] = read.passes
            if read.tokens is not None:
                figures[f"tokens/{name}"] = read.tokens
        latest = range(max(0, self.step - LATEST_STEPS), self.step)
        if not latest:
            return figures
        ids = np.concatenate([self.ids(i) for i in latest])
        rate = stats["batches"] / stats["seconds"] if stats["seconds"] else 0.0
        figures["ids_per_second"] = rate * ids.size / len(latest)
        return {**figures, **self._shares(ids), **self._efficiency(latest)}

    def progress(self) -> Iterator[Any]:
        """Iterates like `iter(loader)`, with a progress bar on the terminal of the first rank.

        It shows the epoch, the steps done and left, ids a second and the share of the time that the loop
        waited. Where there is no terminal, nothing is shown. The batches, and what a state says, are those of
        `iter(loader)`.

        Example:
            >>> import samplerkit as sk
            >>> loader = sk.Loader(range(6), sk.SequentialSampler(), batch_size=3)
            >>> [batch.tolist() for batch in loader.progress()]
            [[0, 1, 2], [3, 4, 5]]
        """
        return with_bar(self)

    def _sources_read(self, place: Place) -> dict[str, SourceRead]:
        run, position = self._cursor.run, place.position
        units = run.epoch(place.epoch)
        if units.plan is not None:
            # Counting the samples of all batches so far would take long.
            position = round(len(units.order) * position / max(1, len(units.plan)))
        return source_reads(run.sampler, run.dataset, units.order, position)

    def _shares(self, ids: np.ndarray[Any, Any]) -> dict[str, float]:
        layout = Layout.of(self._cursor.run.dataset)
        if not layout.parts or not ids.size:
            return {}
        parts = np.searchsorted(layout.part_starts, ids, side="right") - 1
        counts = np.bincount(parts, minlength=len(layout.parts)) / ids.size
        return {f"share/{name}": float(share) for name, share in zip(layout.parts, counts, strict=False)}

    def _efficiency(self, steps: range) -> dict[str, float]:
        reading = self._reading
        plan, delivery = reading.units.plan, reading.delivery
        if plan is None:
            return {}
        numbers = [int(delivery.dealt(reading.shard, step)[0]) for step in steps]
        numbers = [number for number in numbers if plan.has(number)]
        return {"efficiency": float(plan.tokens(numbers).sum() / plan.padded_tokens(numbers).sum())}


SECONDS_BETWEEN = 0.25
"""How often the bar is drawn: its figures take longer than the drawing."""


def with_bar(loader: Any, console: Any = None) -> Iterator[Any]:
    """Iterates over a loader, with a progress bar on the terminal of the first rank.

    Args:
        loader: an iterable of batches; with `__len__` the bar has an end, with `figures` it shows some.
        console: rich's, for a terminal other than standard error.

    Example:
        >>> list(with_bar([1, 2]))
        [1, 2]
    """
    # Only a bar needs it, and it takes a tenth of a second to import.
    progress, consoles = import_module("rich.progress"), import_module("rich.console")
    console = consoles.Console(stderr=True) if console is None else console
    if not console.is_terminal or detect_world().shard_id:
        yield from loader
        return
    done_of_all, figures = progress.MofNCompleteColumn(), "{task.fields[figures]}"
    columns = (*progress.Progress.get_default_columns(), done_of_all, figures)
    # It is drawn by the loop between two batches, not by a thread.
    with progress.Progress(*columns, console=console, auto_refresh=False, transient=False) as bar:
        task = bar.add_task("", total=length_hint(loader) or None, figures="")
        drawn, done = 0.0, 0
        for count, batch in enumerate(loader, 1):
            yield batch
            del batch
            done = getattr(loader, "epoch_step", count)
            if time.monotonic() - drawn > SECONDS_BETWEEN:
                drawn = time.monotonic()
                bar.update(task, completed=done, refresh=True, **_bar_fields(loader))
        bar.update(task, completed=done, refresh=True)  # the loader is at the next epoch by now


def _bar_fields(loader: Any) -> dict[str, str]:
    if not hasattr(loader, "figures"):
        return {}
    figures = loader.figures()
    rate = f"{figures['ids_per_second']:,.0f} ids/s  " if "ids_per_second" in figures else ""
    return {"description": f"epoch {loader.epoch}", "figures": f"{rate}waiting {figures['waiting']:.0%}"}
