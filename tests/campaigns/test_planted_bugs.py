"""Whether the tests would notice: bugs planted in a copy of the package, one at a time.

Run it with `pytest -m campaign tests/campaigns/test_planted_bugs.py`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.campaign

ROOT = Path(__file__).parents[2]
LOADER, STATES = "tests/loading/test_loader.py", "tests/loading/test_exactly_once.py"
LOADERS = f"{LOADER} tests/loading/test_loader_states.py tests/loading/test_loader_workers.py"
LAWS, BRIDGE = "tests/samplers/test_laws.py", "tests/loading/test_torch_sampler.py"
AGREEMENT, DRAWS = "tests/loading/test_agreement.py", "tests/loading/test_draws.py"
UNEVEN = "tests/loading/test_uneven_ranks.py"


MOST_SECONDS = 240
"""Without a bug, the tests of a file take a fourth of that."""


class Bug(NamedTuple):
    """What is planted, where, and the tests that should notice."""

    name: str
    file: str
    right: str
    wrong: str
    tests: str


BUGS = [
    Bug(
        "the position counts one rank's samples",
        "loading/delivery.py",
        "self.start + steps * self.global_batch",
        "self.start + steps * self.batch_size",
        STATES,
    ),
    Bug(
        "the end of an epoch is not seen",
        "loading/delivery.py",
        "steps >= self.job_steps and (",
        "steps > self.job_steps and (",
        STATES,
    ),
    Bug(
        "an epoch ends with the batches of this rank",
        "loading/progress.py",
        "self.reading.delivery.is_over_after(self.delivered)",
        "self.delivered == self.reading.steps",
        UNEVEN,
    ),
    Bug(
        "a state is over with the batches of this rank",
        "loading/progress.py",
        "        if delivery.is_over_after(steps):",
        "        if steps and steps >= self.reading.steps:",
        UNEVEN,
    ),
    Bug(
        "any step has a state",
        "loading/progress.py",
        "if not 0 <= steps <= delivery.job_steps:",
        "if steps < 0:",
        UNEVEN,
    ),
    Bug(
        "a step before the first one has a state",
        "loading/progress.py",
        "if not 0 <= steps <= delivery.job_steps:",
        "if steps > delivery.job_steps:",
        LOADERS,
    ),
    Bug(
        "an epoch of no batches runs ahead",
        "loading/loader.py",
        "if reading.steps:",
        "if reading:",
        "tests/loading/test_run_ahead.py",
    ),
    Bug(
        "a second iterator forgets the epoch that was set",
        "loading/progress.py",
        "        self.end_iteration(self.iteration)\n",
        "        self.iteration = None\n",
        LOADERS,
    ),
    Bug(
        "a break forgets the epoch that was set",
        "loading/progress.py",
        "        elif asked is not None and asked != self.epoch:",
        "        elif False:",
        LOADERS,
    ),
    Bug(
        "the state at the end forgets the epoch that was set",
        "loading/progress.py",
        "return self._run.state(self._following_epoch, 0, self._tail)",
        "return self._run.state(self.epoch + 1, 0, self._tail)",
        LOADERS,
    ),
    Bug(
        "the shard that is dealt below the root is named",
        "loading/identity.py",
        "if is_dealer and not names_shard:",
        "if False:",
        "tests/loading/test_loader_states.py",
    ),
    Bug(
        "close stays at the end of an epoch",
        "loading/loader.py",
        "self._progress.end_iteration(self._progress.iteration)",
        "self._progress.iteration = None",
        LOADERS,
    ),
    Bug(
        "ragged ranks get one sample too many",
        "loading/delivery.py",
        "self._seat(shard) < rest",
        "self._seat(shard) <= rest",
        STATES,
    ),
    Bug(
        "drop rounds up",
        "loading/delivery.py",
        "left // self.global_batch *",
        "-(-left // self.global_batch) *",
        STATES,
    ),
    Bug(
        "the first position of a step is off by one",
        "loading/delivery.py",
        "first = self.start + step * self.global_batch",
        "first = self.start + step * self.global_batch + (step > 1)",
        STATES,
    ),
    Bug(
        "lanes are dealt from the wrong end",
        "loading/delivery.py",
        "ends[lane] + counts[lane]",
        "ends[lane] + counts[0]",
        STATES,
    ),
    Bug(
        "a batch counts before it is handed out",
        "loading/loader.py",
        "progress.delivered = step + 1",
        "progress.delivered = step + 2",
        LOADERS,
    ),
    Bug(
        "a batch counts too late",
        "loading/loader.py",
        "progress.delivered = step + 1",
        "progress.delivered = step",
        LOADERS,
    ),
    Bug(
        "what is prefetched counts",
        "loading/loader.py",
        "steps = self._progress.delivered if step is None else",
        "steps = self._progress.delivered + 2 * self.num_workers if step is None else",
        LOADERS,
    ),
    Bug(
        "an order survives a change of the constants",
        "loading/run.py",
        "wanted = (epoch, self.constants)",
        "wanted = (epoch, RunConstants())",
        LOADERS,
    ),
    Bug(
        "a loaded state starts over",
        "loading/loader.py",
        "self._progress.go_to(saved.epoch, saved.position)",
        "self._progress.go_to(saved.epoch)",
        LOADERS,
    ),
    Bug(
        "the saved constants are ignored",
        "loading/run.py",
        "RunConstants(state.lanes, state.limit)",
        "self.recipe.run_constants(self.world)",
        STATES,
    ),
    Bug(
        "set_epoch forgets a restored position",
        "loading/progress.py",
        "elif epoch != self.epoch:",
        "else:",
        LOADERS,
    ),
    Bug(
        "an epoch never ends",
        "loading/progress.py",
        "self.epoch + 1 if self._asked_epoch is None",
        "self.epoch if self._asked_epoch is None",
        LOADERS,
    ),
    Bug(
        "another seed is let in",
        "loading/state.py",
        '("algorithm", "seed", "dataset"',
        '("algorithm", "dataset"',
        LOADERS,
    ),
    Bug(
        "labels that changed are let in",
        "loading/run.py",
        "describe_dataset(self.dataset) + looks",
        "describe_dataset(self.dataset)",
        "tests/loading/test_changed_datasets.py",
    ),
    Bug(
        "damage is not looked for",
        "loading/state.py",
        'if not _is_text(saved.get("checksum"), _checksum(values)):',
        'if not saved.get("checksum"):',
        LOADERS,
    ),
    Bug(
        "a fitting checksum lets anything in",
        "loading/state.py",
        "            _require_plausible(name, value)\n",
        "            pass\n",
        LOADERS,
    ),
    Bug(
        "the epoch does not reach the dataset",
        "loading/request.py",
        "set_epoch(epoch)\n",
        "set_epoch(0)\n",
        LOADERS,
    ),
    Bug(
        "a dataset is told what comes next with each batch",
        "loading/request.py",
        "last.step < request.step",
        "last.step > request.step",
        "tests/loading/test_expect.py",
    ),
    Bug(
        "the longest wait is the first one",
        "loading/stats.py",
        "max(self.longest, seconds)",
        "max(self.first, seconds)",
        LOADERS,
    ),
    Bug(
        "streams are taken",
        "loading/loader.py",
        "if isinstance(dataset, torch.utils.data.IterableDataset):",
        "if isinstance(dataset, torch.utils.data.IterableDataset) and False:",
        LOADERS,
    ),
    Bug(
        "workers share their random state",
        "loading/worker.py",
        '"<QQQQ", seed, epoch, rank, worker)',
        '"<QQQQ", seed, epoch, rank, 0)',
        LOADERS,
    ),
    Bug(
        "ranks share their random state",
        "loading/worker.py",
        '"<QQQQ", seed, epoch, rank, worker)',
        '"<QQQQ", seed, epoch, 0, worker)',
        LOADERS,
    ),
    Bug(
        "a draw is that of its sample",
        "loading/request.py",
        "            request.positions,\n",
        "            request.ids,\n",
        DRAWS,
    ),
    Bug(
        "draws are counted in their batch",
        "loading/source.py",
        "step, ids, reading.dealt(step))",
        "step, ids, range(len(ids)))",
        DRAWS,
    ),
    Bug(
        "all epochs have the same draws",
        "order/draws.py",
        '"<QQQ", self.seed, self.epoch, self.position)',
        '"<QQQ", self.seed, 0, self.position)',
        DRAWS,
    ),
    Bug(
        "samples are read by the seed of the one before",
        "order/draws.py",
        "self._begin(self.draw(place))",
        "self._begin(self.draw(max(0, place - 1)))",
        DRAWS,
    ),
    Bug(
        "the generators of the loop stay seeded",
        "loading/generators.py",
        "        random.setstate(before[1])\n",
        "",
        DRAWS,
    ),
    Bug(
        "a worker's error is swallowed",
        "loading/watch.py",
        "                ) from error\n            raise\n",
        "                ) from error\n            return []\n",
        LOADERS,
    ),
    Bug(
        "ranks are never compared",
        "loading/agreement.py",
        "self._refuse(others, turn, identity)",
        "pass",
        AGREEMENT,
    ),
    Bug(
        "a shard's pads repeat the wrong samples",
        "order/algebra.py",
        "undealt %= len(self._order)",
        "undealt %= len(self._order) - 1",
        LAWS,
    ),
    Bug(
        "the offset turns the wrong way",
        "order/deal.py",
        "world.shard_id - max(self.offset, 0)",
        "world.shard_id + max(self.offset, 0)",
        LAWS,
    ),
    Bug(
        "the limit is forgotten",
        "samplers/chain.py",
        "return limited(order, constants.limit)",
        "return order",
        LAWS,
    ),
    Bug(
        "a prefix is one too long",
        "order/algebra.py",
        "self._length = min(length, len(order))",
        "self._length = min(length + 1, len(order))",
        LAWS,
    ),
    Bug(
        "the epoch is not in the keys",
        "order/keys.py",
        '"<QQQQQQ", self.seed, self.epoch,',
        '"<QQQQQQ", self.seed, 0,',
        LAWS,
    ),
    Bug("the depth is not in the keys", "order/keys.py", "self.epoch, self.depth,", "self.epoch, 0,", LAWS),
    Bug(
        "the bridge forgets the other ranks",
        "loading/torch_sampler.py",
        "self._yielded * self.world.num_shards",
        "self._yielded",
        BRIDGE,
    ),
    Bug(
        "the bridge is over with the ids of this rank",
        "loading/torch_sampler.py",
        "if 0 < position >= len(self._run.undealt(self.epoch)):",
        "if position > 0 and self._yielded >= len(self.order):",
        BRIDGE,
    ),
    Bug(
        "the bridge passes over an epoch that is set again",
        "loading/torch_sampler.py",
        "if epoch != self.epoch or self._is_over:",
        "if epoch != self.epoch:",
        BRIDGE,
    ),
]


def notices(folder: Path, bug: Bug) -> bool:
    """Plants the bug in a copy of the package and tells whether the tests fail, or come to no end."""
    for part in ("samplerkit", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    file = folder / "samplerkit" / bug.file
    text = file.read_text()
    assert text.count(bug.right) == 1, (bug.name, text.count(bug.right))
    file.write_text(text.replace(bug.right, bug.wrong))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    try:
        result = subprocess.run(
            [*command, *bug.tests.split()],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    assert result.returncode in (0, 1), result.stdout + result.stderr
    return result.returncode == 1


def test_the_tests_pass_without_a_planted_bug(tmp_path):
    assert not notices(tmp_path, Bug("none", "__init__.py", '__version__ = "', '__version__ = "', LOADERS))


def test_all_planted_bugs_but_one_at_most_are_noticed(tmp_path):
    # Two at a time: the tests of loaders wait more than they compute.
    with ThreadPoolExecutor(2) as pool:
        noticed = list(
            pool.map(lambda number: notices(tmp_path / str(number), BUGS[number]), range(len(BUGS)))
        )
    missed = [bug.name for bug, was_noticed in zip(BUGS, noticed, strict=True) if not was_noticed]
    print(f"{len(BUGS)} bugs planted, {len(BUGS) - len(missed)} noticed; missed: {missed or 'none'}")
    assert len(BUGS) >= 20
    assert len(missed) <= 1, missed
