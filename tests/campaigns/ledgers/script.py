"""One random case: a dataset, a chain, batches in every second one, and a script of random actions.

`python -m tests.campaigns.ledgers.script 4711 4712` repeats two cases and prints their actions.
"""

import sys
import traceback
from collections.abc import Callable, Iterable
from random import Random

from tests.campaigns.ledgers.batched import BatchedRecipe, draw_batched
from tests.campaigns.ledgers.chains import Recipe, draw_recipe
from tests.campaigns.ledgers.counted import Ledger
from tests.campaigns.ledgers.job import Job, Saved, Setting

SEED = 2026
MAX_RANKS = 5
LEAVES = ["drop the iterators", "close the iterators", "close the loaders", "raise in the loop"]


def draw_setting(draw: Random, recipe: Recipe | BatchedRecipe, *, workers: bool) -> Setting:
    """Draws settings that may change after a resume; cases with workers are small."""
    fewest = recipe.fewest_ranks
    most = max(fewest, 2) if workers else MAX_RANKS
    ranks = recipe.first_ranks if recipe.keeps_ranks else draw.randint(fewest, most)
    return Setting(
        ranks=ranks,
        options=recipe.options(draw),
        after_break=draw.choice(["restart", "continue"]),
        run_ahead=draw.random() < 0.5,
        device=draw.choice([None, None, None, "argument", "loader"]),
        threads=draw.random() < 0.2,
        expecting=draw.random() < 0.3,
        workers=draw.randint(1, 2) if workers else 0,
        persistent=draw.random() < 0.5,
    )


class Script:
    """Draws and runs the case of a number.

    Args:
        number: of the case; all else follows from it.
        ledger: counts the received samples.
        log: is called with each action, before it is done.
    """

    def __init__(self, number: int, ledger: Ledger, log: Callable[[str], None]) -> None:
        self._draw = draw = Random(SEED * 10**9 + number)
        self._log = log
        self._workers = draw.random() < 0.03
        draw_any = draw_batched if number % 2 else draw_recipe
        self._recipe = draw_any(draw, 2 if self._workers else MAX_RANKS)
        self._tail = draw.choice(self._recipe.tails)
        self._saved: list[Saved] = []
        first = draw_setting(draw, self._recipe, workers=self._workers)
        first = Setting(**{**vars(first), "ranks": self._recipe.first_ranks})
        log(f"{self._recipe}\ntail {self._tail}, {first}")
        self._job = Job(self._recipe, self._tail, first, ledger)

    def run(self) -> None:
        """Does actions of a training script, then reads an epoch to its end."""
        verbs = [self._read] * 6 + [self._exhaust, self._leave, self._leave, self._set_epoch, self._set_epoch]
        verbs += [self._save, self._save, self._load, self._restart, self._begin_another, self._begin_another]
        verbs += [self._use_ended, self._request_missing, *[self._edit] * (4 * self._recipe.can_be_edited)]
        try:
            for _ in range(self._draw.randint(2, 5 if self._workers else 14)):
                self._draw.choice(verbs)()
            self._exhaust()
        finally:
            self._job.end()

    def _some_steps(self) -> int:
        return self._draw.choice([1, 1, 2, 3, max(1, self._job.model.steps)])

    def _some_epoch(self) -> int:
        epoch = self._job.model.epoch
        return self._draw.choice([epoch, epoch, epoch + 1, 0, self._draw.randint(0, 4)])

    def _read(self) -> None:
        steps, epoch = self._some_steps(), self._some_epoch() if self._draw.random() < 0.1 else None
        self._log(f"read {steps} steps" + ("" if epoch is None else f", set epoch {epoch} before the first"))
        self._job.read(steps, set_epoch=epoch)

    def _exhaust(self) -> None:
        self._log("read to the end")
        self._job.read(10**6 if self._job.setting.threads else self._job.model.steps + 1)
        while self._job.model.is_live:
            self._job.read(1)

    def _begin_another(self) -> None:
        steps, epoch = self._some_steps(), self._some_epoch() if self._draw.random() < 0.3 else None
        suffix = "" if epoch is None else f", set epoch {epoch} before the first"
        self._log(f"begin another iteration and read {steps} steps{suffix}")
        self._job.read(steps, set_epoch=epoch, restart=True)

    def _leave(self) -> None:
        how = self._draw.choice(LEAVES)
        self._log(how)
        self._job.leave(how)

    def _set_epoch(self) -> None:
        epoch = self._some_epoch()
        self._log(f"set epoch {epoch}")
        self._job.set_epoch(epoch)
        self._job.check()

    def _save(self) -> None:
        step = self._draw.choice([None, None, self._draw.randint(0, self._job.model.steps)])
        self._log(f"save, step {step}")
        self._saved.append(self._job.save(step))
        self._job.check_histories_since(self._saved)

    def _edit(self) -> None:
        setting = self._job.setting
        # In its own thread, a device stage requests the next batches at any time.
        if not setting.device or not (setting.run_ahead or self._job.model.is_live):
            edits = {"skip": self._draw.randint(1, 5), "without": [0, 3]}
            name, further = self._draw.choice([*edits]), self._draw.randint(0, 9)
            self._log(f"edit {name} {edits[name]}, {further} after the requested positions")
            self._job.edit(further, **{name: edits[name]})

    def _load(self) -> None:
        states = [saved for saved in self._saved if saved.edits == self._job.edits]
        if states:
            saved = self._draw.choice(states)
            self._log(f"load {saved.place}")
            self._job.load(saved)

    def _restart(self) -> None:
        if not self._saved:
            self._save()
        setting, saved = draw_setting(self._draw, self._recipe, workers=self._workers), self._saved[-1]
        self._log(f"start again from {saved.place}, with {setting}")
        self._job.start(setting, saved.edits, closes=self._draw.random() < 0.7)
        self._job.load(saved)

    def _use_ended(self) -> None:
        self._log("use iterators that were ended")
        self._job.use_ended_iterators()

    def _request_missing(self) -> None:
        step = self._draw.choice([-1, -5, self._job.model.steps + 1, 10**6])
        self._log(f"ask for the state after step {step}")
        self._job.request_missing_states(step)


def run_case(number: int, ledger: Ledger) -> str | None:
    """Runs one case; returns its error, with the actions before it."""
    lines: list[str] = []
    try:
        Script(number, ledger, lines.append).run()
    except Exception as error:
        lines += [f"-- {type(error).__name__}: {error}", "".join(traceback.format_exception(error)[-3:])]
        return "\n".join([f"case {number}", *lines])
    return None


def main(numbers: Iterable[int]) -> int:
    """Runs cases, prints the failed ones and the counts."""
    ledger, failed = Ledger(), 0
    for number in numbers:
        wrong = run_case(number, ledger)
        failed += wrong is not None
        if wrong is not None:
            sys.stdout.write(f"{wrong}\n")
    sys.stdout.write(
        f"failed {failed}, epochs {ledger.epochs}, delivered {ledger.delivered}, "
        f"lost {ledger.lost}, repeated {ledger.repeated}\n"
    )
    return failed


if __name__ == "__main__":
    first, *end = map(int, sys.argv[1:])
    sys.exit(min(1, main(range(first, end[0] if end else first + 1))))
