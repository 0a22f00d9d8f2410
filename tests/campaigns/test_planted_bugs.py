"""Whether the tests would notice: bugs planted in a copy of the package, one at a time.

Run it with `pytest -m campaign tests/campaigns/test_planted_bugs.py`.
"""

from __future__ import annotations

import pytest

from tests.campaigns.planting import Bug, notices

pytestmark = pytest.mark.campaign

LOADER, STATES = "tests/loading/test_loader.py", "tests/loading/test_exactly_once.py"
LOADERS = f"{LOADER} tests/loading/test_loader_states.py tests/loading/test_loader_workers.py"
LAWS, BRIDGE = "tests/samplers/test_laws.py", "tests/loading/test_torch_sampler.py"
AGREEMENT, DRAWS = "tests/loading/test_agreement.py", "tests/loading/test_draws.py"
ZOO = "tests/samplers/test_repeats_and_parts.py"
UNEVEN, CURSOR = "tests/loading/test_uneven_ranks.py", "tests/loading/test_cursor_machine.py"


DICE, MIXED, SHARES = (
    "tests/order/test_dice.py",
    "tests/samplers/test_dice_mixtures.py",
    "tests/samplers/test_rank_shares.py",
)

BUGS = [
    Bug(
        "dice of all lanes are alike",
        "_few_words",
        "np.frombuffer(lanes, dtype=np.int64) * 16",
        "0 * np.frombuffer(lanes, dtype=np.int64)",
        DICE,
    ),
    Bug(
        "the digit of a threshold counts as below it",
        "Dice.before",
        "die < next_digit",
        "die <= next_digit",
        DICE,
    ),
    Bug(
        "the inverse takes the digit behind",
        "Dice.position",
        "np.count_nonzero(counts <= left, axis=0) - 1",
        "np.count_nonzero(counts < left, axis=0)",
        DICE,
    ),
    Bug("a source begins anew when its weight changes", "Turns._lane", "before - after", "-after", DICE),
    Bug(
        "a run of blocks goes on over lanes",
        "Turns._blocks",
        "(np.diff(numbers) != 1) | (np.diff(lanes) != 0)",
        "np.diff(numbers) > 1",
        DICE,
    ),
    Bug(
        "what is read ahead is of another place",
        "Part.ids_at",
        "(start - kept.start) // step",
        "(start - kept.start) // step + 1",
        DICE,
    ),
    Bug(
        "a nested mixture leaves its lanes",
        "Mix.pieces",
        "turns * self.lanes + lanes",
        "turns * self.lanes",
        DICE,
    ),
    Bug("once reads from a lane that has no more", "OnceEach.__init__", "min(ends)", "max(ends[1:])", MIXED),
    Bug(
        "a nested mixture throws the dice of its root",
        "Blend._dice",
        "path_number(self._context.path)",
        "0",
        MIXED,
    ),
    Bug(
        "sources without a sampler are shuffled alike",
        "MixedSource._seed",
        "path_number(self.context.path)",
        "0",
        MIXED,
    ),
    Bug(
        "an epoch reads what the one before read",
        "Blend.order",
        "self._context.epoch * self.length",
        "0 * self.length",
        MIXED,
    ),
    Bug("recipes walk chains only", "seeds_of", "branch._tree()", "()", MIXED),
    Bug("a source may be dealt", "require_undealt", "sampler.is_distributed", "False", MIXED),
    Bug(
        "ranks of a mixture resonate",
        "Dice.cells",
        "hashes.maps(0, counters)",
        "hashes.maps(0, counters * 0)",
        f"{DICE} {SHARES}",
    ),
    Bug(
        "the position counts one rank's samples",
        "Delivery.position_after",
        "self.first(steps)",
        "self.start + steps * self.batch_size",
        STATES,
    ),
    Bug(
        "the end of an epoch is not seen",
        "Delivery.is_over_after",
        "not self.is_of_the_job(steps)",
        "not self.is_of_the_job(steps - 1)",
        STATES,
    ),
    Bug(
        "an epoch ends with the batches of this rank",
        "Readings.reached",
        "delivery.is_over_after(steps)",
        "0 < steps >= self(epoch, start).steps",
        UNEVEN,
    ),
    Bug(
        "any step has a state",
        "Loader.state_dict",
        "not (step == 0 or delivery.is_of_the_job(step - 1))",
        "step < 0",
        UNEVEN,
    ),
    Bug(
        "a step before the first one has a state",
        "Loader.state_dict",
        "not (step == 0 or delivery.is_of_the_job(step - 1))",
        "not (step <= 0 or delivery.is_of_the_job(step - 1))",
        LOADERS,
    ),
    Bug(
        "an epoch of no batches runs ahead",
        "Loader.iterate_on",
        "self._run.require_agreement(reading, self.tail, self._agreement_seconds)",
        "self._run.require_agreement(reading, self.tail, self._agreement_seconds)\n"
        "if not reading.steps:\n"
        "    opened = self._source.open(reading, make_stage, run_ahead=run_ahead)",
        "tests/loading/test_run_ahead.py",
    ),
    Bug(
        "a second iterator forgets the epoch that was set",
        "Cursor.upcoming",
        "at, beyond = self.at, self._beyond()",
        "at, beyond = self.at, None",
        LOADERS,
    ),
    Bug(
        "a break forgets the epoch that was set",
        "Cursor._beyond",
        "self.asked is not None and self.asked != at.epoch",
        "False",
        LOADERS,
    ),
    Bug(
        "the state at the end forgets the epoch that was set",
        "Cursor.place",
        "self._following",
        "self.epoch + 1",
        LOADERS,
    ),
    Bug(
        "the shard that is dealt below the root is named",
        "describe_chain",
        "is_dealer and not names_shard",
        "False",
        "tests/loading/test_loader_states.py",
    ),
    Bug(
        "close stays at the end of an epoch",
        "Loader.close",
        "self._cursor.end(self._cursor.at)",
        "self._cursor.at.is_open = False",
        LOADERS,
    ),
    Bug(
        "ragged ranks get one sample too many",
        "Delivery.samples",
        "self.seat(shard) < rest",
        "self.seat(shard) <= rest",
        STATES,
    ),
    Bug(
        "drop rounds up",
        "Delivery.samples",
        "self.first(self.job_steps) - self.start",
        "self.first(self.job_steps + 1) - self.start",
        STATES,
    ),
    Bug(
        "the first position of a step is off by one",
        "Delivery.dealt",
        "first, seat, covered = self.first(step), self.seat(shard), self.stage_of(step).size",
        "first, seat, covered = self.first(step) + (step > 1), self.seat(shard), self.stage_of(step).size",
        STATES,
    ),
    Bug(
        "lanes are dealt from the wrong end",
        "Delivery._in_lane_order",
        "ranks - ends[lane] + counts[lane]",
        "ranks - ends[lane] + counts[0]",
        STATES,
    ),
    Bug(
        "a batch counts before it is handed out",
        "Loader.iterate_on",
        "iteration.taken = step + 1",
        "iteration.taken = step + 2",
        LOADERS,
    ),
    Bug(
        "a batch counts too late",
        "Loader.iterate_on",
        "iteration.taken = step + 1",
        "iteration.taken = step",
        LOADERS,
    ),
    Bug(
        "what is prefetched counts",
        "Loader.state_dict",
        "self._cursor.place(step)",
        "self._cursor.place(self._cursor.at.taken + 2 * self.num_workers if step is None else step)",
        LOADERS,
    ),
    Bug(
        "an order survives a change of the constants",
        "Run.undealt",
        "wanted = (epoch, self.constants, recipe)",
        "wanted = (epoch, RunConstants(), recipe)",
        LOADERS,
    ),
    Bug(
        "a loaded state starts over",
        "Loader.load_state_dict",
        "self._cursor.go_to(saved.epoch, saved.position)",
        "self._cursor.go_to(saved.epoch)",
        LOADERS,
    ),
    Bug(
        "the saved constants are ignored",
        "Run.restore",
        "RunConstants(state.lanes, state.limit)",
        "self.recipe.run_constants(self.world)",
        STATES,
    ),
    Bug(
        "a second iterator leaves the first one open",
        "Cursor._move",
        "left.is_open = False",
        "pass",
        LOADERS,
    ),
    Bug(
        "an epoch that stays is passed over",
        "Cursor._beyond",
        "Iteration(at.epoch, is_finished=True)",
        "Iteration(at.epoch + 1)",
        CURSOR,
    ),
    Bug(
        "a finished epoch that stays has no end in its state",
        "Cursor.place",
        "is_over or at.is_finished",
        "is_over",
        CURSOR,
    ),
    Bug(
        "what is left early counts from its start",
        "Cursor.end",
        "self._move(iteration if beyond is None else beyond)",
        "self._move(Iteration(iteration.epoch, iteration.start) if beyond is None else beyond)",
        CURSOR,
    ),
    Bug(
        "an epoch that is set in a loop holds at once",
        "Cursor.set_epoch",
        "self._waits and at.is_open",
        "False",
        CURSOR,
    ),
    Bug(
        "a device loader counts what is loaded",
        "Steps.reached",
        "start + taken",
        "taken",
        CURSOR,
    ),
    Bug(
        "an iteration that was made for another epoch counts",
        "Cursor.begin",
        "made_for is None or made_for == upcoming",
        "True",
        "tests/compat/test_torch.py::test_an_iteration_that_was_made_for_another_epoch_counts_for_nobody",
    ),
    Bug(
        "a section that is not known is passed over",
        "require_known",
        "section['version'] > known and not section.get('optional', False)",
        "section['version'] > known and section.get('optional', False)",
        LOADERS,
    ),
    Bug(
        "set_epoch forgets a restored position",
        "Cursor.set_epoch",
        "epoch != at.epoch",
        "True",
        LOADERS,
    ),
    Bug(
        "an epoch never ends",
        "Cursor._following",
        "self.at.epoch + (self._advances or self.is_told)",
        "self.at.epoch",
        LOADERS,
    ),
    Bug(
        "another seed is let in",
        "COMPARED",
        '"seed"',
        '"algorithm"',
        LOADERS,
    ),
    Bug(
        "labels that changed are let in",
        "Run.described",
        "describe_dataset(self.dataset, blocks) + looks",
        "describe_dataset(self.dataset, blocks)",
        "tests/loading/test_changed_datasets.py",
    ),
    Bug(
        "damage is not looked for",
        "State.from_dict",
        'not _is_text(saved.get("checksum"), _checksum(values))',
        'not saved.get("checksum")',
        LOADERS,
    ),
    Bug(
        "a fitting checksum lets anything in",
        "State.from_dict",
        "_require_plausible(name, value)",
        "pass",
        LOADERS,
    ),
    Bug(
        "the epoch does not reach the dataset",
        "RequestedDataset._begin_epoch",
        "set_epoch(epoch)",
        "set_epoch(0)",
        LOADERS,
    ),
    Bug(
        "a dataset is told what comes next with each batch",
        "RequestedDataset._begin",
        "last.step < request.step",
        "last.step > request.step",
        "tests/loading/test_expect.py",
    ),
    Bug(
        "the longest wait is the first one",
        "Waits.add",
        "max(self.longest, seconds)",
        "max(self.first, seconds)",
        LOADERS,
    ),
    Bug(
        "streams are taken",
        "Loader.__init__",
        "isinstance(dataset, torch.utils.data.IterableDataset)",
        "False",
        LOADERS,
    ),
    Bug(
        "workers share their random state",
        "seed_worker",
        'struct.pack("<QQQQ", seed, epoch, rank, worker)',
        'struct.pack("<QQQQ", seed, epoch, rank, 0)',
        LOADERS,
    ),
    Bug(
        "ranks share their random state",
        "seed_worker",
        'struct.pack("<QQQQ", seed, epoch, rank, worker)',
        'struct.pack("<QQQQ", seed, epoch, 0, worker)',
        LOADERS,
    ),
    Bug(
        "a draw is that of its sample",
        "RequestedDataset._draws",
        "request.positions",
        "request.ids",
        DRAWS,
    ),
    Bug(
        "draws are counted in their batch",
        "Asked.requests",
        "Request(reading.epoch, reading.start, step, ids, draws, told, segments, edits)",
        "Request(reading.epoch, reading.start, step, ids, range(len(ids)), told, segments, edits)",
        DRAWS,
    ),
    Bug(
        "all epochs have the same draws",
        "Draw.digest",
        'struct.pack("<QQQ", self.seed, self.epoch, self.position)',
        'struct.pack("<QQQ", self.seed, 0, self.position)',
        DRAWS,
    ),
    Bug(
        "samples are read by the seed of the one before",
        "Draws.enter",
        "self._begin(self.draw(place))",
        "self._begin(self.draw(max(0, place - 1)))",
        DRAWS,
    ),
    Bug(
        "the generators of the loop stay seeded",
        "kept_generators",
        "random.setstate(before[1])",
        "pass",
        DRAWS,
    ),
    Bug(
        "a worker's error is swallowed",
        "Watched.__next__",
        "may_be_dying = isinstance(error, EOFError | ConnectionError)",
        "may_be_dying = isinstance(error, EOFError | ConnectionError)\n"
        "if not self._dead_workers(may_be_dying=may_be_dying):\n"
        "    return []",
        LOADERS,
    ),
    Bug(
        "ranks are never compared",
        "Agreement._wait",
        "self._refuse(others, turn, identity)",
        "pass",
        AGREEMENT,
    ),
    Bug(
        "a shard's pads repeat the wrong samples",
        "Shard.read",
        "undealt %= len(self._order)",
        "undealt %= len(self._order) - 1",
        LAWS,
    ),
    Bug(
        "the offset turns the wrong way",
        "Deal.shard",
        "world.shard_id - max(self.offset, 0)",
        "world.shard_id + max(self.offset, 0)",
        LAWS,
    ),
    Bug(
        "the limit is forgotten",
        "Chain._up_to_the_deal",
        "limited(order, constants.limit)",
        "order",
        LAWS,
    ),
    Bug(
        "a prefix is one too long",
        "Prefix.__init__",
        "self._length = min(length, len(order))",
        "self._length = min(length + 1, len(order))",
        LAWS,
    ),
    Bug(
        "the epoch is not in the keys",
        "Key.words",
        "self.epoch",
        "0",
        LAWS,
    ),
    Bug(
        "the depth is not in the keys",
        "Key.words",
        "self.depth",
        "0",
        LAWS,
    ),
    Bug(
        "folds are drawn anew in each epoch",
        "FoldSampler.draw",
        'Key(self.seed, 0, context.depth, "fold")',
        'Key(self.seed, context.epoch, context.depth, "fold")',
        ZOO,
    ),
    Bug(
        "a window reaches into the next file",
        "EpisodeWindows.__init__",
        "(layout.sizes - size) // stride + 1",
        "-(-(layout.sizes - size) // stride) + 1",
        ZOO,
    ),
    Bug(
        "all copies of a sample are in one pass",
        "Repeated.passes_at",
        "positions % self._repeats",
        "positions * 0",
        "tests/order/test_passes.py",
    ),
    Bug(
        "passes of a repeat of a repeat are added up",
        "Composed.passes_at",
        "passes * part.num_passes + part.passes_at(positions)",
        "passes + part.passes_at(positions)",
        "tests/order/test_passes.py",
    ),
    Bug(
        "the bridge forgets the other ranks",
        "_reached",
        "start + ids * run.world.num_shards",
        "start + ids",
        BRIDGE,
    ),
    Bug(
        "the bridge is over with the ids of this rank",
        "_reached",
        "0 < position >= len(run.undealt(epoch))",
        "0 < ids >= len(run.undealt(epoch)) // run.world.num_shards",
        BRIDGE,
    ),
    Bug(
        "the bridge passes over an epoch that is set again",
        "Cursor.set_epoch",
        "epoch != at.epoch or at.is_finished or self._is_over",
        "epoch != at.epoch or at.is_finished",
        BRIDGE,
    ),
]


def test_the_tests_pass_without_a_planted_bug(tmp_path):
    assert not notices(
        tmp_path, Bug("none", "Loader.close", "self._source.close()", "self._source.close()", LOADERS)
    )


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed(tmp_path, bug):
    assert notices(tmp_path, bug)
