"""Every token is an input exactly once, on any ranks, also where windows get another length in mid-run."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.loading.run_tokens import steps_to_a_multiple
from samplerkit.loading.state import State
from tests.loading.rings import Rings
from tests.loading.worker_kinds import beside

BLOCK = 12
FILES = [100, 57, 10, 200]
TREE = {"web": [61, 30], "code": [45]}


def blocks(pool=2, child=None, seed=3):
    sampler = sk.BlockSampler(pool, seed=seed)
    sampler.add_child(child)
    return sampler


def mixture(**more):
    return sk.MixtureSampler(
        {"web": sk.RandomSampler(shuffle="files", seed=5), "code": None},
        weights={"web": 0.6, "code": 0.4},
        lanes=2,
        seed=5,
        **more,
    )


def loader(seq_len, ranks=1, rank=0, *, batch_size=1, files=FILES, sampler=None, **options):
    options = {"tail": "ragged", "collate_fn": list, **options}
    data = Rings(files, seq_len, BLOCK)
    sampler = blocks() if sampler is None else sampler
    return sk.Loader(data, sampler, batch_size=batch_size, world=sk.World(ranks, rank), **options)


def tokens_of(run, steps=None):
    """The tokens that are inputs of the batches of a loader, each with the epoch of its source."""
    told = []
    for batch in itertools.islice(run, steps):
        told += [(epoch, *token) for epoch, inputs in batch for token in inputs]
    return told


def read(seq_len, ranks, state=None, steps=None, **options):
    """What all ranks read, the next state, and whether it is the end of the epoch."""
    told, after = [], None
    for rank in range(ranks):
        with loader(seq_len, ranks, rank, **options) as run:
            if state is not None:
                run.load_state_dict(state)
            told += tokens_of(run, steps)
            after = run.state_dict() if steps is None or after is None else after
    return Counter(told), json.loads(json.dumps(after))


def mostly_in_the_campaign(cases, *by_default):
    """All cases, of which only some run by default."""
    return [pytest.param(*case, marks=() if case in by_default else pytest.mark.campaign) for case in cases]


CHANGES = [
    (*lengths, *ranks)
    for lengths in [(2, 4), (12, 1), (3, 12), (6, 4), (4, 4)]
    for ranks in [(8, 6), (1, 3), (4, 1)]
]


@pytest.mark.parametrize(
    ("seq_len", "epoch"),
    mostly_in_the_campaign(itertools.product([1, 2, 3, 4, 6, 12], [0, 3]), (4, 0), (12, 3)),
)
def test_every_token_is_an_input_exactly_once_an_epoch(seq_len, epoch):
    with loader(seq_len, batch_size=5) as run:
        run.set_epoch(epoch)
        told = Counter(tokens_of(run))
    assert {*told.values()} == {1}
    assert len(told) == run.dataset.expected(epoch) == 96 + 48 + 0 + 192
    assert {number for number, _, _ in told} == {epoch}


@pytest.mark.parametrize(
    ("before", "after", "ranks", "others"), mostly_in_the_campaign(CHANGES, (3, 12, 8, 6), (6, 4, 4, 1))
)
def test_a_run_goes_on_with_another_length_at_every_pool(before, after, ranks, others, record_property):
    whole, _ = read(before, 1)
    pool, cases = 2 * BLOCK, 0
    step = before * ranks
    for place in range(0, 336, pool):
        if place % step:
            continue
        first, state = read(before, ranks, steps=place // step)
        assert state["sections"]["tokens"]["tokens"] == place
        rest, end = read(after, others, state)
        assert first + rest == whole
        assert (end["epoch"], end["position"]) == (1, 0)
        cases += 1
    assert cases >= 1
    print(f"{cases} changes")
    record_property("cases", cases)


@pytest.mark.parametrize("runs", mostly_in_the_campaign([(4,), (220,)], (4,)))
def test_random_runs_lose_and_repeat_no_token(runs, record_property):
    """Random files, blocks, pools, orders, ranks and batches; the length changes where steps meet a pool."""
    random = np.random.default_rng(runs)
    epochs = windows = changes = 0
    for _ in range(runs):
        block = int(random.choice([6, 8, 12]))
        lengths = [number for number in range(1, block + 1) if block % number == 0]
        files = random.integers(1, 9 * block, random.integers(1, 5)).tolist()
        if max(files) < block:
            continue
        pool, seed = int(random.integers(1, 4)), int(random.integers(9))
        child = [None, sk.SequentialSampler(), sk.RandomSampler(shuffle="partial", partial_size=2)][seed % 3]

        def made(seq_len, ranks, rank, files=files, block=block, pool=pool, seed=seed, child=child):
            data, world = Rings(files, seq_len, block, seed), sk.World(ranks, rank)
            size = max(1, block // seq_len // 2)
            return sk.Loader(
                data, blocks(pool, child, seed), batch_size=size, world=world, tail="ragged", collate_fn=list
            )

        state, told = None, Counter()
        seq_len = 0
        while state is None or state["epoch"] < 6:
            before, seq_len = seq_len, int(random.choice(lengths))
            ranks = int(random.integers(1, 9))
            epoch = 0 if state is None else state["epoch"]
            runs_of_ranks = [made(seq_len, ranks, rank) for rank in range(ranks)]
            for run in runs_of_ranks:
                if state is not None:
                    run.load_state_dict(state)
            changes += before not in (0, seq_len) and state["position"] > 0
            # Up to a step that ends with a pool; the whole epoch where there is none.
            per_step, first = runs_of_ranks[0].batch_size * ranks, runs_of_ranks[0].state_dict()["position"]
            of_pool = pool * block // seq_len
            missing = steps_to_a_multiple(first, of_pool, per_step) or of_pool // np.gcd(of_pool, per_step)
            meets = (first + missing * per_step) % of_pool == 0
            steps = int(missing) if meets and random.random() < 0.8 else None
            for run in runs_of_ranks:
                seen = tokens_of(run, steps)
                windows += len(seen) // seq_len
                told.update(seen)
            state = json.loads(json.dumps(runs_of_ranks[0].state_dict()))
            if steps is None:
                state = made(seq_len, 1, 0).state_dict()
                state = State.from_dict(state)
                state = replace(state, epoch=epoch + 1, position=0).to_dict()
            epochs += state["epoch"] - epoch
        assert {*told.values()} == {1}
        an_epoch = sum(count // block * block for count in files)
        assert len(told) == state["epoch"] * an_epoch + state["position"] * seq_len
    print(
        f"{epochs} epochs, {windows} windows, {changes} changes of length within an epoch: lost 0, repeated 0"
    )
    record_property("changes", changes)
    assert changes > runs // 2


def test_within_a_pool_it_is_refused_and_the_step_that_is_named_is_taken():
    run = loader(2, 2, batch_size=2)
    pool, total, cases = 2 * BLOCK, 336, 0
    for step in range(1, 336 // 8 + 1):
        state, tokens = run.state_dict(step=step), 8 * step
        other = loader(4, 1, batch_size=2)
        if tokens % pool == 0 or tokens == total:
            other.load_state_dict(state)
            continue
        with pytest.raises(sk.StateError, match=r"seq_len: .* stands within a pool of 24 tokens") as caught:
            other.load_state_dict(state)
        missing = int(str(caught.value).split("seq_len=2 for ")[1].split(" more steps")[0])
        assert 0 < missing <= 2
        other.load_state_dict(run.state_dict(step=step + missing))
        assert f"{tokens + 8 * missing} tokens into the epoch" in str(caught.value)
        cases += 1
    assert cases == 28
    # Steps that never meet the beginning of a pool: the place is named, and taken by other steps.
    with pytest.raises(sk.StateError, match="seq_len=2 to position 12, 24 tokens"):
        loader(4, 5, batch_size=1).load_state_dict(loader(2, 5).state_dict(step=1))


def test_a_refused_state_leaves_the_run_as_it_was():
    run, other = loader(2), loader(4)
    with pytest.raises(sk.StateError):
        other.load_state_dict(run.state_dict(step=1))
    assert Counter(tokens_of(other)) == read(2, 1)[0]


def test_the_identity_of_a_run_does_not_change_with_the_length():
    assert {loader(seq_len).fingerprint for seq_len in (1, 2, 6, 12)} == {loader(4).fingerprint}
    others = {
        "another pool": loader(4, sampler=blocks(3)),
        "another seed": loader(4, sampler=blocks(seed=4)),
        "other files": loader(4, files=[100, 57, 12, 200]),
        "a global order": loader(4, sampler=sk.RandomSampler(seed=3)),
    }
    assert loader(4).fingerprint not in {run.fingerprint for run in others.values()}
    state = loader(2).state_dict(step=24)
    for run in [others["another pool"], others["another seed"], others["other files"]]:
        with pytest.raises(sk.StateError, match=r"sampler:|seed:|dataset:"):
            run.load_state_dict(state)


@pytest.mark.parametrize("saved_by", [True, False])
def test_another_order_is_refused_by_name_with_the_mend(saved_by):
    by = [sk.RandomSampler(seed=3), blocks()]
    first, second = by if saved_by else by[::-1]
    state = loader(2, sampler=first).state_dict(step=24)
    with pytest.raises(sk.StateError, match=r"seq_len: .*BlockSampler"):
        loader(4, sampler=second).load_state_dict(state)
    with pytest.raises(sk.StateError, match=r"seq_len: .*BlockSampler"):
        loader(4, sampler=sk.RandomSampler(seed=3)).load_state_dict(
            loader(2, sampler=sk.RandomSampler(seed=3)).state_dict(step=24)
        )
    same = loader(2, sampler=first)
    same.load_state_dict(state)
    assert len(tokens_of(same)) == 336 - 48


def test_another_block_is_another_dataset():
    other = sk.Loader(Rings(FILES, 2, 2 * BLOCK), blocks(), batch_size=1, world=sk.World(1, 0))
    with pytest.raises(sk.StateError, match=r"block_len: .*seq_len alone may change"):
        other.load_state_dict(loader(2).state_dict(step=24))


def test_a_limit_of_whole_pools_is_a_limit_of_as_many_tokens():
    def dealt(samples):
        root = sk.DistributedSampler(shuffle=False, num_samples=samples)
        root.add_child(blocks())
        return root

    first = loader(2, 2, 0, sampler=dealt(36))
    state = first.state_dict(step=6)
    assert (state["limit"], state["position"]) == (72, 12)
    rest = loader(4, 1, 0, sampler=dealt(36))
    rest.load_state_dict(state)
    assert len(tokens_of(rest)) == 144 - 24
    with pytest.raises(sk.StateError, match="limit: is no whole number of pools"):
        loader(4, 1, 0, sampler=dealt(35)).load_state_dict(
            loader(2, 2, 0, sampler=dealt(35)).state_dict(step=6)
        )


def test_a_source_that_is_read_again_has_another_phase_and_each_pass_has_every_token_once():
    """Passes run on over the borders of epochs, and a run changes its length within them."""
    sampler = mixture(num_samples=22)  # blocks, of which the sources have 7 and 3
    told, state = Counter(), None
    for seq_len, ranks, steps in [(2, 2, 24), (4, 3, 18), (1, 1, None), (6, 2, None), (12, 1, None)] * 2:
        seen, state = read(seq_len, ranks, state, steps, files=TREE, sampler=blocks(1, sampler), batch_size=1)
        told += seen
    assert state["epoch"] >= 6
    by_pass = {}
    for (number, file, place), count in told.items():
        by_pass.setdefault((number, file), Counter())[place] += count
    whole = {0: 60, 1: 24, 2: 36}
    last = {file: max(number for number, one in by_pass if one == file) for file in whole}
    assert min(last.values()) > 6
    for (number, file), places in by_pass.items():
        assert {*places.values()} == {1}
        if number < last[file]:
            assert len(places) == whole[file]
    phases = {number: min(places) for (number, file), places in by_pass.items() if file == 0}
    assert len({*phases.values()}) > 1


def test_epochs_of_sources_are_told_through_workers_trees_and_pads():
    sampler = blocks(2, mixture(num_samples=22, passes="restart"))
    with loader(4, files=TREE, sampler=sampler, batch_size=7, tail="pad") as run:
        run.set_epoch(5)
        order = run.order
        expected = order.epochs_at(5, np.arange(len(order))).tolist()
        here = [epoch for batch in run for epoch, _ in batch]
    assert here[: len(expected)] == expected
    assert here[len(expected) :] == expected[: len(here) - len(expected)]
    assert {epoch & (2**40 - 1) for epoch in expected} == {5}
    assert 0 < max(expected) >> 40 < order.num_passes
    for workers in (2, "2 threads"):
        with loader(4, files=TREE, sampler=sampler, batch_size=7, tail="pad", **beside(workers)) as run:
            run.set_epoch(5)
            assert [epoch for batch in run for epoch, _ in batch] == here


def test_a_ledger_reads_each_source_in_the_epochs_in_which_its_sampler_does():
    for child in (
        mixture(num_samples=22),
        mixture(num_samples=22, passes="restart"),
        sk.RandomSampler(seed=1),
    ):
        layout = sk.Layout.tree({"web": sk.Layout([5, 2]), "code": 3})
        for epoch in (0, 4):
            plain, edited = child.order(layout, epoch), sk.Ledger(child).order(layout, epoch)
            places = np.arange(len(plain))
            assert plain.epochs_at(epoch, places).tolist() == edited.epochs_at(epoch, places).tolist()


def test_what_repeats_is_in_an_epoch_of_its_own_each_time():
    repeated = sk.RepeatSampler(3)
    repeated.add_child(sk.MixtureSampler([1, 1], num_samples=20, seed=1))
    order = repeated.order(sk.Layout([2, 3]), 4)
    pairs = {*zip(order, order.epochs_at(4, np.arange(60)).tolist(), strict=True)}
    assert len(pairs) == 60


class Both:
    """Wants both: it is given passes, then epochs."""

    wants_passes = wants_epochs = True

    def __len__(self):
        return 6

    def __getitems__(self, ids, passes, epochs):
        return [*zip(ids.tolist(), passes.tolist(), epochs.tolist(), strict=True)]


class Neither(Both):
    wants_passes = wants_epochs = False

    def __getitems__(self, ids):
        return [(int(id), -1, -1) for id in ids]


@pytest.mark.parametrize("in_a_tree", [False, True])
def test_a_dataset_may_want_passes_and_epochs(in_a_tree):
    data = sk.TreeDataset({"a": Both(), "b": Neither()}) if in_a_tree else Both()
    with sk.Loader(data, sk.SubsetSampler([4, 1, 4] + [9] * in_a_tree), batch_size=4, collate_fn=list) as run:
        run.set_epoch(2)
        samples = [sample for batch in run for sample in batch]
    assert samples[:3] == [(4, 0, 2), (1, 0, 2), (4, 1, 2 + 2**40)]
    assert samples[3:] == [(3, -1, -1)] * in_a_tree


def test_a_tree_without_a_loader_tells_no_epoch_to_parts_that_know_it():
    class Alone:
        wants_epochs = True

        def __len__(self):
            return 3

        def __getitems__(self, ids, epochs=None):
            return [(int(id), epochs is None) for id in ids]

    assert sk.TreeDataset({"a": Alone()}).__getitems__([2, 0]) == [(2, True), (0, True)]


def test_batches_of_windows_are_refused_with_another_length():
    recipe = sk.TokenBatches(24, lengths=np.full(168, 2))
    saved = sk.Loader(Rings(FILES, 2, BLOCK), blocks(), batches=recipe, world=sk.World(1, 0)).state_dict()
    other = sk.TokenBatches(24, lengths=np.full(84, 4))
    with pytest.raises(sk.StateError, match="counts batches"):
        sk.Loader(Rings(FILES, 4, BLOCK), blocks(), batches=other, world=sk.World(1, 0)).load_state_dict(
            saved
        )


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"windows_per_block": None}, "windows_per_block"),
        ({"windows_per_block": 0}, "windows_per_block"),
        ({"pool": "2"}, "pool"),
        ({"seq_len": True}, "seq_len"),
        ({"tokens": -1}, "tokens"),
        ({"version": 9}, "tokens"),
        ({"more": 1}, "tokens"),
    ],
)
def test_a_damaged_section_is_refused_by_name(changed, field):
    state = State.from_dict(loader(2).state_dict(step=12))
    section = {**state.sections["tokens"], **changed}
    forged = replace(state, sections={"tokens": section}).to_dict()
    with pytest.raises(sk.StateError, match=rf"state: {field}:"):
        loader(4).load_state_dict(forged)


def test_samplers_for_torch_go_on_with_another_length_too():
    first = sk.TorchSampler(blocks(), Rings(FILES, 2, BLOCK), world=sk.World(1, 0))
    before = list(itertools.islice(first, 24))
    second = sk.TorchSampler(blocks(), Rings(FILES, 4, BLOCK), world=sk.World(1, 0))
    second.load_state_dict(first.state_dict())
    covered = [id * 2 + half for id in second for half in range(2)] + before
    assert sorted(covered) == list(range(168))
    torn = sk.TorchSampler(blocks(), Rings(FILES, 2, BLOCK), world=sk.World(1, 0))
    list(itertools.islice(torn, 5))
    with pytest.raises(sk.StateError, match="go on with seq_len=2 to position 12"):
        second.load_state_dict(torn.state_dict())


def test_windows_of_no_known_length_are_counted_in_blocks():
    def run(pieces):
        return sk.Loader(
            sk.Layout([4 * pieces, 2 * pieces]),
            sk.BlockSampler(2, windows_per_block=pieces),
            batch_size=2,
            world=sk.World(1, 0),
        )

    assert run(4).fingerprint == run(2).fingerprint
    other = run(2)
    other.load_state_dict(run(4).state_dict(step=4))
    assert other.state_dict()["position"] == 4
    assert other.state_dict()["sections"]["tokens"]["tokens"] is None
    with pytest.raises(sk.StateError, match=r"windows_per_block: .* within a pool of 8 windows"):
        other.load_state_dict(run(4).state_dict(step=1))


def test_the_steps_to_a_multiple_are_the_fewest():
    for position, of, step in itertools.product(range(30), range(1, 13), range(1, 9)):
        found = [n for n in range(of) if (position + n * step) % of == 0]
        assert steps_to_a_multiple(position, of, step) == (found[0] if found else None)


def edited(*edits):
    return blocks(2, sk.Ledger(mixture(num_samples=22), [sk.Edit(**edit) for edit in edits]))


WEIGHTS = {"at": 8, "weights": {"web": 0.1, "code": 0.9}}


def test_weights_change_between_pools_and_the_length_where_it_may():
    """The blocks that are read are those that the ledger alone gives, whatever they are cut into."""
    layout = Rings(TREE, 12, BLOCK).block_layout
    ledger = edited(WEIGHTS).get_child()
    expected = [ledger.order(layout, epoch)[:].tolist() for epoch in range(2)]
    state, read_blocks = None, []
    for seq_len, ranks, steps in [(2, 2, 12), (4, 3, None), (12, 1, 10), (3, 4, None)]:
        runs = [
            loader(seq_len, ranks, rank, files=TREE, sampler=edited(WEIGHTS), batch_size=1)
            for rank in range(ranks)
        ]
        pieces = BLOCK // seq_len
        for run in runs:
            if state is not None:
                run.load_state_dict(state)
            count = run.steps_left if steps is None else steps
            read_blocks += [id // pieces for step in range(count) for id in run.ids(step).tolist()] * seq_len
        state = runs[0].state_dict(step=max(run.steps_left for run in runs) if steps is None else steps)
    assert (state["epoch"], state["position"]) == (2, 0)
    whole = Counter({block: count * BLOCK for block, count in Counter(sum(expected, [])).items()})
    assert Counter(read_blocks) == whole
    plain = mixture(num_samples=22).order(layout, 0)[:].tolist()
    assert expected[0][:8] == plain[:8]
    assert expected[0] != plain


def test_a_state_behind_other_edits_of_blocks_is_refused():
    state = loader(2, files=TREE, sampler=edited(WEIGHTS)).state_dict(step=8 * 6)
    behind = loader(2, files=TREE, sampler=edited(WEIGHTS)).state_dict(step=8 * 6 + 1)
    free = loader(4, files=TREE, sampler=edited())
    free.load_state_dict(state)
    assert free.fingerprint != loader(4, files=TREE, sampler=edited(WEIGHTS)).fingerprint
    with pytest.raises(sk.StateError, match="ledger: edit 1 of the saved run is missing"):
        loader(2, files=TREE, sampler=edited()).load_state_dict(behind)
    late = loader(2, files=TREE, sampler=edited()).state_dict(step=8 * 6 + 1)
    with pytest.raises(sk.StateError, match="ledger: was saved at position 10, before which this run"):
        loader(2, files=TREE, sampler=edited(WEIGHTS)).load_state_dict(late)


def test_edits_that_do_not_go_with_blocks_are_refused():
    with pytest.raises(sk.ArgumentValueError, match=r"edit at 7: lies within a pool of 2 blocks.*say at=8"):
        loader(2, files=TREE, sampler=edited({"at": 7, "skip": 2})).state_dict()
    with pytest.raises(sk.ArgumentValueError, match="where it counts blocks"):
        loader(2, files=TREE, sampler=edited({"at": 8, "global_batch": 4})).state_dict()
    with pytest.raises(sk.CompositionError, match="start with a ledger below the BlockSampler"):
        loader(2, files=TREE, sampler=edited()).edit(skip=2)
    recipe = sk.TokenBatches(24, lengths=np.full(60, 2))
    with pytest.raises(sk.NotSupportedError, match="not counted in blocks"):
        sk.Loader(Rings(TREE, 2, BLOCK), edited(), batches=recipe)
