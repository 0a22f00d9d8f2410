"""A job that reads by a recipe and is moved about at random, beside a model: plan, epoch and position."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

import samplerkit as sk
from samplerkit.batches.segments import Packs
from samplerkit.errors import SamplerkitError
from tests.campaigns.batch_runs.recipes import (
    Part,
    WrongError,
    kept,
    leaves_out,
    parts_of,
    recipe_of,
    require,
    require_limits,
)
from tests.campaigns.batch_runs.samples import InParts, Pairs, Samples, lengths_of, parts_in, sampler_of

KINDS = ("tokens", "tokens", "packs", "packs", "buckets", "keys", "classes", "of one's own")
TAILS = ("pad", "drop", "ragged", "split")
COLLATES = {"as it is": {"collate_fn": list}, "padded": {"collate_fn": sk.PadCollate()}, "packed": {}}


class BatchRun:
    """The ranks of a job in lock step, and what they should read.

    Args:
        seed: from which all is drawn.
    """

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        size = dice.choice([3, 5, 9, 20])
        self.kind = dice.choice(KINDS)
        size = max(size, 6) if self.kind == "classes" else size
        self.lengths = lengths_of(dice, size)
        self.recipe = recipe_of(dice, self.kind, self.lengths)
        self.sampler = sampler_of(dice, size, fixes_a_set=self.kind == "classes")
        self.tail = dice.choice(TAILS if self.recipe.can_be_split else TAILS[:3])
        self.goes_on = dice.random() < 0.5
        self.is_fixed_to_two = self.sampler.deal is None and self.sampler.is_distributed
        self.first_ranks = self._any_ranks()
        self.constants = self.sampler.run_constants(sk.World(self.first_ranks, 0))
        abreast = self.recipe.abreast or self.first_ranks
        parts = InParts if self.kind == "packs" and dice.random() < 0.5 else Samples
        self.data = (Pairs if np.ndim(self.recipe.lengths) == 2 else parts)(self.lengths)
        self.plans = self.recipe.over(self.sampler, self.data, constants=self.constants, abreast=abreast)
        self.of_epochs: dict[int, list[list[Part]]] = {}
        self.saved: list[tuple[str, int, int, int | None]] = []
        self.steps = 0
        self._stand(0, 0)
        self._start(self.first_ranks)

    def __str__(self) -> str:
        chain = type(self.sampler).__name__
        return f"{self.recipe}, {chain}, {self.lengths}, {self.tail}, {self.first_ranks} ranks at first"

    def _any_ranks(self) -> int:
        return 2 if self.is_fixed_to_two else self.dice.randint(1, 4)

    # What should be read.

    def plan(self, epoch: int) -> list[list[Part]]:
        """The batches of an epoch, which hold what the recipe leaves of its order."""
        if epoch not in self.of_epochs:
            plan = self.plans.plan(epoch)
            batches = [self._planned(batch) for batch in plan]
            self._require_kept(epoch, batches, plan.dropped)
            self.of_epochs[epoch] = batches
        return self.of_epochs[epoch]

    def _planned(self, batch: Any) -> list[Part]:
        if isinstance(batch, Packs):
            return [*zip(batch.ids.tolist(), batch.starts.tolist(), batch.lengths.tolist(), strict=True)]
        parts = [parts_of(self.recipe, self.lengths, id) for id in batch.tolist()]
        require(all(parts), f"{batch.tolist()} has samples that are to be left out")
        require_limits(self.recipe, self.lengths, batch.tolist())
        return [part for (part,) in parts]

    def _require_kept(self, epoch: int, batches: list[list[Part]], dropped: int) -> None:
        if self.kind == "classes":
            return
        order = np.asarray(self.sampler.undealt_order(self.data, epoch, constants=self.constants)).tolist()
        wanted, found = kept(self.recipe, self.lengths, order), Counter(sum(batches, []))
        require(not found - wanted, f"the plan holds {found - wanted} too much")
        require(leaves_out(self.recipe) or found == wanted, f"the plan has no {wanted - found}")
        if self.recipe.num_batches is None:
            whole = sum(times for (_, start, _), times in found.items() if not start)
            require(dropped == len(order) - whole, f"{dropped} dropped, and {len(order) - whole} lacking")

    def _stand(self, epoch: int, position: int) -> None:
        self.epoch, self.position, self.start = epoch, position, position
        self.iterators: list[Any] | None = None
        self.asked: int | None = None
        self.just_finished: int | None = None

    @property
    def is_over(self) -> bool:
        left = len(self.plan(self.epoch)) - self.position
        return left <= 0 or (self.tail == "drop" and left < self.ranks)

    # The job.

    def _start(self, ranks: int) -> None:
        self.ranks = ranks
        self.collate = self.dice.choice([*COLLATES][: 3 if self.kind == "packs" else 2])
        options: dict[str, Any] = {**COLLATES[self.collate]}
        if self.dice.random() < 0.15:
            options |= {"num_workers": 2, "workers": "threads"}
        self.loaders = [
            sk.Loader(
                self.data,
                self.sampler,
                batches=self.recipe,
                tail=self.tail,
                world=sk.World(ranks, rank),
                after_break="continue" if self.goes_on else "restart",
                run_ahead=self.dice.random() < 0.2,
                **options,
            )
            for rank in range(ranks)
        ]

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()

    def read(self, steps: int) -> None:
        """Reads some steps on all ranks, or to the end of the epoch."""
        if self.iterators is None:
            if self.position > self.start and not self.goes_on:
                self.position = 0
            self.start, self.just_finished = self.position, None
            self.iterators = [iter(loader) for loader in self.loaders]
        for _ in range(steps):
            received = [next(iterator, None) for iterator in self.iterators]
            if all(batch is None for batch in received):
                require(self.is_over, f"the epoch ends at {self.position} of {len(self.plan(self.epoch))}")
                self._finish()
                return
            require(self.tail == "ragged" or None not in received, "ranks make other numbers of steps")
            self._require_step(received)

    def _require_step(self, received: list[Any]) -> None:
        batches, end = self.plan(self.epoch), min(self.position + self.ranks, len(self.plan(self.epoch)))
        found: list[list[Part]] = []
        tokens = 0
        for loader, batch in zip(self.loaders, received, strict=True):
            if batch is None:
                continue
            pads, parts = loader.pads(loader.step - 1), parts_in(batch)
            ids = loader.ids(loader.step - 1).tolist()
            require(bool(pads.all()) == bool(pads.any()), "a batch of pads and others")
            require([part[0] for part in parts] == ids, f"{parts} are read, and {ids} told")
            found += [] if pads.any() else [parts]
            tokens += sum(part[2] for part in parts)
        expected = batches[self.position : end]
        if self.collate == "as it is" and self.kind != "packs":  # nothing is truncated
            expected = [[(id, 0, self.lengths[id]) for id, _, _ in batch] for batch in expected]
        is_split = self.tail == "split" and end - self.position < self.ranks
        wanted = [Counter(sum(expected, []))] if is_split else [Counter(batch) for batch in expected]
        got = [Counter(sum(found, []))] if is_split else [Counter(batch) for batch in found]
        require(got == wanted, f"epoch {self.epoch}, position {self.position}: {got} in place of {wanted}")
        if self.kind == "packs":
            told = self.loaders[0].tokens(self.loaders[0].step - 1)
            require(told == tokens, f"{told} tokens are told, and {tokens} read")
        self.position = end
        self.steps += 1

    def _finish(self) -> None:
        finished = self.epoch
        self._stand(self.epoch + 1 if self.asked is None else self.asked, 0)
        self.just_finished = finished

    # Moves.

    def move(self) -> None:
        """Does one of all that a loop and its trainer may do."""
        often, seldom = [self._some, self._resize], [self._leave, self._second, self._save, self._set_epoch]
        self.dice.choice([*often, *often, *seldom, self.read_to_the_end])()

    def _some(self) -> None:
        self.read(self.dice.randint(1, 4))

    def read_to_the_end(self) -> None:
        """Reads what is left of the epoch, or the next one."""
        self.read(1)
        while self.just_finished is None:
            self.read(1)

    def _left(self) -> None:
        if self.position > self.start and self.is_over:
            self._finish()
        elif self.asked not in (None, self.epoch):
            self._stand(self.asked or 0, 0)
        else:
            self.iterators, self.asked = None, None

    def _leave(self) -> None:
        if self.iterators is None:
            return
        for ending in self.iterators if self.dice.random() < 0.5 else self.loaders:
            ending.close()
        self._left()

    def _second(self) -> None:
        if self.iterators is None:
            return
        old = self.iterators
        self._left()
        self.read(1)
        for iterator in old:
            with contextlib.suppress(sk.StateError):
                require(next(iterator, None) is None, "an iterator goes on after a second one")

    def _save(self) -> None:
        states = {json.dumps(loader.state_dict()) for loader in self.loaders}
        require(len(states) == 1, f"ranks say other states: {states}")
        state = states.pop()
        if self.is_over and self.position > 0:
            next_epoch = self.epoch + 1 if self.asked is None else self.asked
            self.saved.append((state, next_epoch, 0, self.epoch))
            return
        said = json.loads(state)
        if self.position:  # how a state says that it is between two epochs is a matter of its own
            place = (said["epoch"], said["position"])
            require(place == (self.epoch, self.position), f"{place} is said of {self.epoch, self.position}")
        self.saved.append((state, self.epoch, self.position, self.just_finished))

    def _resize(self) -> None:
        """Other ranks go on from the state of now, or from one of before."""
        self._save()
        saved = self.saved[-1] if self.dice.random() < 0.7 else self.dice.choice(self.saved)
        state, epoch, position, finished = saved
        self.close()
        self._start(self._any_ranks())
        for loader in self.loaders:
            loader.load_state_dict(json.loads(state))
        self._stand(epoch, position)
        self.just_finished = finished

    def _set_epoch(self) -> None:
        """Sends the job to another epoch, but none that is over: what that leaves is not looked at here."""
        if self.position > self.start and self.is_over:
            return
        epoch = self.dice.choice([epoch for epoch in range(4) if epoch != self.just_finished])
        if self.iterators is not None and epoch == self.epoch:
            return
        for loader in self.loaders:
            loader.set_epoch(epoch)
        if self.iterators is not None:
            self.asked = epoch
        elif epoch != self.epoch:
            finished = self.just_finished
            self._stand(epoch, 0)
            self.just_finished = finished  # as a state says


class Runs(NamedTuple):
    """What came of some runs.

    Args:
        kinds: how many there were of each kind of recipe.
        steps: how many steps were read.
        wrong: what went wrong, with the seed.
    """

    kinds: Counter[str]
    steps: int
    wrong: list[str]


def runs_at_random(seeds: range, moves: int = 12) -> Runs:
    """Makes a run of each seed, and moves it about."""
    kinds: Counter[str] = Counter()
    steps, wrong = 0, []
    for seed in seeds:
        run = BatchRun(seed)
        try:
            for _ in range(moves):
                run.move()
            run.read_to_the_end()
        except (WrongError, SamplerkitError) as error:
            wrong.append(f"seed {seed}, {run}: {error!r}")
        finally:
            run.close()
        kinds[run.kind] += 1
        steps += run.steps
    return Runs(kinds, steps, wrong)
