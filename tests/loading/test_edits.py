"""Runs that are edited while they are read, ramps of the batch size among them, on any ranks."""

import json
import threading
from itertools import zip_longest

import numpy as np
import pytest
import torch.distributed

import samplerkit as sk
from samplerkit.inspect.time_machine import occurrences_of
from samplerkit.loading.agreement import Agreement
from samplerkit.loading.run.delivery import Delivery
from tests.loading.worker_kinds import THREADS, with_workers
from tests.numbers import Numbers


def ranks_of(dataset, ledger, ranks, state=None, **options):
    """The loaders of all ranks, in one process."""
    loaders = [sk.Loader(dataset, ledger, world=sk.World(ranks, rank), **options) for rank in range(ranks)]
    for loader in loaders if state is not None else ():
        loader.load_state_dict(state)
    return loaders


def read(loaders, steps):
    """The ids that all ranks read in some steps together, and the state after them."""
    ids = []
    iterators = [iter(loader) for loader in loaders]
    for _ in range(steps):
        batches = [next(iterator, None) for iterator in iterators]
        ids += [id for batch in batches if batch is not None for id in batch.tolist()]
    states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] for state in states)
    return ids, states[0]


SKIPS = [sk.Edit(at=8, skip=4), sk.Edit(at=12, skip=2), sk.Edit(at=40, skip=2)]


def loader_of(edits=(), **options):
    return sk.Loader(range(30), sk.Ledger(sk.SequentialSampler(), edits), **{"batch_size": 2, **options})


def ids_of(loader):
    return [id for batch in loader for id in batch.tolist()]


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 1, "prefetch_factor": 4}, THREADS]
)
def test_requested_samples_stay_and_later_ones_are_edited(options):
    loader, ids, first = loader_of(**options), [], 0
    for batch in loader:
        if loader.step == 1:
            first = loader.editable_from
            assert first == 2 + 2 * options.get("num_workers", 0) * options.get("prefetch_factor", 2)
            with pytest.raises(sk.ArgumentRangeError, match=f"at: is before position {first}, up to which"):
                loader.edit(at=first - 1, skip=1)
            loader.edit(sk.Edit(at=first, skip=4))
        ids += batch.tolist()
    assert ids == [*range(first), *range(first + 4, 30), *range(4)]
    assert loader.sampler.edits == (sk.Edit(at=first, skip=4),)


@pytest.mark.parametrize("workers", [1, "1 threads"])
def test_an_epoch_that_is_read_ahead_counts_as_requested(workers):
    loader = loader_of(**with_workers(workers), run_ahead=True)
    with loader:
        for _ in loader:
            pass
        assert loader.editable_from == 34
        with pytest.raises(sk.ArgumentRangeError):
            loader.edit(at=30, skip=2)
        loader.edit(at=34, skip=2)
        assert ids_of(loader) == [*range(4), *range(6, 30), 0, 1]


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        ({"at": 2, "skip": 1}, sk.ArgumentRangeError),
        ({"at": 4, "skip": -1}, sk.ArgumentRangeError),
        ({"at": 5, "skip": 1}, sk.ArgumentValueError),
        ({"at": 6, "weights": {"web": 1}}, sk.NotSupportedError),
        ({"at": 6, "skip": 2**62}, sk.ArgumentRangeError),
        ({"at": 6, "skipp": 2}, TypeError),
    ],
)
def test_a_bad_edit_is_a_typed_error_and_the_run_continues_unchanged(edit, error, tmp_path):
    path = tmp_path / "edits.jsonl"
    ledger = sk.Ledger(sk.SequentialSampler(), [sk.Edit(at=6, skip=3)], edits_file=path)
    loader, ids = sk.Loader(range(20), ledger, batch_size=2), []
    for batch in loader:
        ids += batch.tolist()
        if loader.step == 2:
            with pytest.raises(error):
                loader.edit(**edit)
    assert ids == [*range(6), *range(9, 20), *range(3)]
    assert loader.sampler is ledger
    assert not path.exists()


def test_an_edit_at_the_end_of_an_epoch_comes_after_the_dropped_samples():
    loader = loader_of(tail="drop", batch_size=4)
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)  # no StopIteration
    state = loader.state_dict()
    assert loader.edit(skip=1) == 30
    again = loader_of(loader.sampler.edits, tail="drop", batch_size=4)
    again.load_state_dict(state)
    assert ids_of(again)[0] == 1


def test_a_rank_whose_edits_no_other_rank_has_may_not_continue_alone():
    agreement = Agreement(torch.distributed.HashStore(), 0, 3)
    with pytest.raises(sk.DisagreementError, match=r"ranks 1, 2 did not report it within 0.1 s"):
        agreement.require({"dataset": "30", "edits": "1, of digest a"}, 0.1, alone=False)


def state_after(steps, edits):
    return json.loads(json.dumps(loader_of(edits).state_dict(step=steps)))


def test_edits_after_the_position_of_a_state_may_differ_and_those_before_it_may_not():
    state = state_after(6, SKIPS)
    for edits in (SKIPS, [*SKIPS[:1]], [*SKIPS[:1], sk.Edit(at=12, skip=7)]):
        loader = loader_of(edits)
        loader.load_state_dict(state)
        assert ids_of(loader)[0] == 16 + sum(edit.skip for edit in edits[1:] if edit.at == 12)


def test_epochs_that_were_read_before_a_run_went_back_are_not_edited_from_its_state():
    loader = loader_of()
    ids_of(loader)
    loader.set_epoch(3)
    next(iter(loader))
    loader.set_epoch(0)
    again = loader_of()
    again.load_state_dict(loader.state_dict())
    assert again.editable_from == loader.editable_from == 92
    with pytest.raises(sk.ArgumentRangeError, match="up to which samples were requested"):
        again.edit(at=91, skip=1)


@pytest.mark.parametrize(
    ("saved", "current", "message"),
    [
        ([], SKIPS[:1], r"edit 1, before position 12, is not the same.*Edit\(at=8"),
        (SKIPS[:1], [], r"edit 1, before position 12, is not the same.*here '\[\]'"),
        (SKIPS[:1], [sk.Edit(at=8, skip=5)], r"edit 1, before position 12, is not the same.*skip=5"),
        (SKIPS[:1], [sk.Edit(at=7, skip=4)], r"edit 1, before position 12, is not the same.*at=7"),
    ],
)
def test_a_state_after_other_edits_is_refused_and_the_edit_is_named(saved, current, message):
    loader = loader_of(current)
    with pytest.raises(sk.StateError, match=message):
        loader.load_state_dict(state_after(6, saved))
    assert ids_of(loader) == ids_of(loader_of(current))


def test_edits_of_two_threads_are_both_made():
    loader = loader_of([])
    cursor = loader._cursor
    other = threading.Thread(target=loader.edit, kwargs={"at": 20, "skip": 2})
    with cursor.lock:
        other.start()
        other.join(0.3)  # it waits for this edit
        cursor._edit(loader.sampler.edited(SKIPS[0]))
    other.join(30)
    assert loader.sampler.edits == (SKIPS[0], sk.Edit(at=20, skip=2))


def test_a_state_after_edits_needs_a_ledger_and_one_of_a_plain_run_does_not():
    plain = sk.Loader(range(30), sk.SequentialSampler(), batch_size=2)
    with pytest.raises(sk.StateError, match="edit 1, before position 12, is not the same"):
        plain.load_state_dict(state_after(6, SKIPS))
    edited = loader_of([sk.Edit(at=6, skip=20)])
    edited.load_state_dict(plain.state_dict(step=3))
    assert ids_of(edited)[:3] == [26, 27, 28]
    plain.load_state_dict(state_after(3, SKIPS))
    assert ids_of(plain)[:3] == [6, 7, 8]


def test_a_different_edit_among_many_is_named_by_a_narrow_range():
    edits = [sk.Edit(at=at, skip=2) for at in range(1000)]
    changed = [*edits[:700], sk.Edit(at=700, skip=3), *edits[701:]]
    first, second = (
        sk.Loader(range(5000), sk.Ledger(sk.RandomSampler(), ledger_edits), batch_size=2)
        for ledger_edits in (edits, changed)
    )
    state = first.state_dict(step=1200)
    assert len(json.dumps(state)) < 4096
    with pytest.raises(sk.StateError, match="one of the edits 489 to 744, before position"):
        second.load_state_dict(state)
    second.load_state_dict(first.state_dict(step=350))


def test_a_file_keeps_all_edits_and_the_next_start_reads_it(tmp_path):
    path = tmp_path / "edits.jsonl"
    ledger = sk.Ledger(sk.SequentialSampler(), SKIPS[:1], edits_file=path)
    loaders = ranks_of(range(30), ledger, 2, batch_size=1)
    for loader in loaders:
        loader.edit(SKIPS[1])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [edit.fields for edit in SKIPS[:2]]
    for given in ([], SKIPS[:1], SKIPS[:2], SKIPS):
        again = sk.Ledger(sk.SequentialSampler(), given, edits_file=path)
        assert again.edits == tuple(SKIPS[: max(2, len(given))])
    with pytest.raises(sk.ArgumentValueError, match=r"edits\[0\]: differs from the one in the file"):
        sk.Ledger(edits=[sk.Edit(at=8, skip=5)], edits_file=path)


def test_a_file_that_cannot_be_written_is_an_error_and_no_edit(tmp_path):
    loader = sk.Loader(
        range(9), sk.Ledger(sk.SequentialSampler(), edits_file=tmp_path / "no" / "file"), batch_size=1
    )
    with pytest.raises(sk.ArgumentValueError, match="edits_file: cannot be written"):
        loader.edit(at=4, skip=2)
    assert loader.sampler.edits == ()


class Hashed(list):
    """Samples with a fingerprint."""

    def __init__(self, samples, fingerprint):
        super().__init__(samples)
        self.fingerprint = fingerprint


RANGES = {"web": range(100), "code": range(100, 150), "new": range(150, 180)}
PARTS = {name: Hashed(ids, name) for name, ids in RANGES.items()}
GROWN = sk.Edit(at=60, source="new", weights={"web": 1, "code": 1, "new": 2})


def of_parts(*names, hashed=True, **others):
    parts = {**{name: PARTS[name] for name in names}, **others}
    return sk.TreeDataset(parts) if hashed else Numbers(sk.Layout.tree({n: len(p) for n, p in parts.items()}))


def mixed(*edits):
    mix = sk.MixtureSampler({"web": None, "code": None}, 400, weights={"web": 3, "code": 1}, lanes=2, seed=2)
    return sk.Ledger(mix, edits)


@pytest.mark.parametrize("hashed", [True, False])
def test_a_part_that_is_appended_to_the_tree_in_mid_run_is_read_from_its_edit_on(hashed):
    small, grown = of_parts("web", "code", hashed=hashed), of_parts("web", "code", "new", hashed=hashed)
    options = {"batch_size": 5, "collate_fn": np.array}
    before, state = read(ranks_of(small, mixed(), 2, **options), 4)
    (position, state_at) = state["position"], json.loads(json.dumps(state))
    after, later = read(ranks_of(grown, mixed(GROWN), 1, state_at, **options), 6)
    order = mixed(GROWN).order(grown)
    assert position == 40
    assert [*sorted(before), *after] == [*sorted(order[:40].tolist()), *order[40:70].tolist()]
    assert order[:60].tolist() == mixed().order(small)[:60].tolist()
    assert (order[60:] >= 150).sum() == pytest.approx(170, abs=12)
    # A state saved since then is of the larger tree, and only resumes with that.
    last, _ = read(ranks_of(grown, mixed(GROWN), 2, later, **options), 2)
    assert sorted(last) == sorted(order[70:90].tolist())
    with pytest.raises(sk.StateError, match="dataset: differs"):
        sk.Loader(small, mixed(), **options).load_state_dict(later)


def test_a_tree_that_differs_by_more_than_its_new_part_is_refused():
    state = sk.Loader(of_parts("web", "code"), mixed(), batch_size=5).state_dict(step=4)
    other = Hashed(range(100, 150), "other")
    for tree, edits in (
        (of_parts("web", "code", "new"), []),
        (of_parts("web", code=other, new=PARTS["new"]), [GROWN]),
        (of_parts("web", "new", "code"), [GROWN]),
        (of_parts("web", "code", "new", more=other), [GROWN]),
    ):
        loader = sk.Loader(tree, mixed(*edits), batch_size=5)
        with pytest.raises(sk.StateError, match="dataset: differs"):
            loader.load_state_dict(state)
    past = sk.Loader(of_parts("web", "code"), mixed(), batch_size=5).state_dict(step=20)
    with pytest.raises(sk.StateError, match="edit 1, before position 100, is not the same"):
        sk.Loader(of_parts("web", "code", "new"), mixed(GROWN), batch_size=5).load_state_dict(past)


def counted_steps(total, start, size, ramp, tail):
    """The positions of each step, one after another: the place where a step begins decides its size."""
    steps, position = [], start
    while position < total:
        step_size = next((changed for place, changed in reversed(ramp) if place <= position), size)
        if tail == "drop" and position + step_size > total:
            break
        steps.append(list(range(position, min(total, position + step_size))))
        position += step_size
    return steps


def random_delivery(number):
    rng = np.random.default_rng(number)
    ranks, total = int(rng.integers(1, 5)), int(rng.integers(1, 90))
    places = np.sort(rng.integers(0, 90, rng.integers(0, 4))).tolist()
    ramp = tuple((place, ranks * int(rng.integers(1, 5))) for place in places)
    return Delivery(
        total=total,
        start=int(rng.integers(0, total)),
        num_shards=ranks,
        batch_size=int(rng.integers(1, 5)),
        tail=("pad", "drop", "ragged")[number % 3],
        rotation=int(rng.integers(0, ranks)),
        lanes=int(rng.integers(1, 6)),
        ramp=ramp,
    )


def test_steps_of_several_sizes_match_a_plain_count_and_each_place_is_located():
    cases = 400
    for number in range(cases):
        delivery = random_delivery(number)
        total, ranks = delivery.size, delivery.num_shards
        expected = counted_steps(
            total, delivery.start, ranks * delivery.batch_size, delivery.ramp, delivery.tail
        )
        assert delivery.job_steps == len(expected), number
        ends = [delivery.start, *(step[-1] + 1 for step in expected)]
        assert [delivery.position_after(steps) for steps in range(len(ends))] == ends
        seen = {}
        for rank in range(ranks):
            steps = delivery.steps(rank)
            assert [delivery.has(rank, step) for step in range(-1, len(expected) + 1)] == [
                0 <= step < steps for step in range(-1, len(expected) + 1)
            ]
            for step in range(steps):
                for place, position in enumerate(delivery.dealt(rank, step)):
                    seen[position] = (rank, step, place)
        for step, positions in enumerate(expected):
            assert {seen[position][1] for position in positions} == {step}, number
        pads = set(seen) - {position for step in expected for position in step}
        assert len(pads) == (-(total - delivery.start) % ranks if delivery.tail == "pad" else 0)
        times = occurrences_of(0, delivery, np.arange(total))
        assert {time.position: (time.rank, time.step, time.place) for time in times} == seen, number
    print(f"{cases} cases")


RAMP = [sk.Edit(at=at, global_batch=size) for at, size in ((16, 8), (50, 24), (100, 12), (130, 4))]


def test_a_run_whose_batches_grow_is_resumed_on_other_ranks_with_the_same_steps():
    chain = sk.RandomSampler(seed=5)
    order = np.concatenate([chain.order(100, epoch) for epoch in range(2)]).tolist()
    expected = [
        sorted(order[100 * epoch + position] for position in step)
        for epoch, ramp in enumerate([((16, 8), (50, 24)), ((0, 12), (30, 4))])
        for step in counted_steps(100, 0, 4, ramp, "ragged")
    ]
    state, steps = None, []
    for ranks, count in ((2, 3), (4, 2), (1, 4), (2, 2), (4, 99)):
        loaders = ranks_of(
            range(100), sk.Ledger(chain, RAMP), ranks, state, batch_size=4 // ranks, tail="ragged"
        )
        while count and len(steps) < len(expected):
            for batches in zip_longest(*map(iter, loaders)):
                steps.append(sorted(id for batch in batches if batch is not None for id in batch.tolist()))
                count -= 1
                if not count:
                    break
        state = loaders[0].state_dict()
    assert steps == expected


def test_a_global_batch_that_the_ranks_do_not_divide_is_refused_when_edited_and_when_loaded():
    edits = [sk.Edit(at=10, global_batch=6), sk.Edit(at=60, global_batch=8)]
    two = sk.Loader(range(100), sk.Ledger(sk.RandomSampler(), edits), batch_size=5, world=sk.World(2, 0))
    with pytest.raises(sk.ArgumentValueError, match="edit at 70: sets a global_batch that 2 ranks do not"):
        two.edit(at=70, global_batch=9)
    assert two.sampler.edits == tuple(edits)
    early, late = two.state_dict(step=3), two.state_dict(step=11)
    assert [early["position"], late["position"]] == [22, 72]
    four = sk.Loader(range(100), sk.Ledger(sk.RandomSampler(), edits), batch_size=5, world=sk.World(4, 0))
    with pytest.raises(sk.ArgumentValueError, match="edit at 10: sets a global_batch that 4 ranks do not"):
        four.load_state_dict(early)
    with pytest.raises(sk.ArgumentValueError, match="edit at 10: sets a global_batch that 4 ranks do not"):
        next(iter(four))
    four.load_state_dict(late)
    assert len(next(iter(four))) == 2
    assert len(four) == len(counted_steps(100, 0, 20, ((10, 6), (60, 8)), "pad"))


def test_batches_that_grow_in_mid_run_end_the_epoch_earlier():
    loader = sk.Loader(range(12), sk.Ledger(sk.SequentialSampler()), batch_size=2)
    batches = iter(loader)
    sizes = [len(next(batches)), len(next(batches))]
    loader.edit(global_batch=4)
    assert [*sizes, *map(len, batches)] == [2, 2, 4, 4]


def test_a_history_has_no_samples_that_a_ramp_left_out():
    ledger = sk.Ledger(sk.SequentialSampler(), [sk.Edit(at=4, global_batch=4)])
    whole, whole_steps = (
        sk.Loader(range(11), ledger, batch_size=2, tail=tail) for tail in ("ragged", "drop")
    )
    whole_steps.load_state_dict(whole.state_dict(step=3), allow={"tail"})
    assert list(whole_steps) == []
    assert whole_steps.history()[:].tolist() == [*range(8)]
