"""What a loader hands out, and what it says of itself."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint

import samplerkit as sk
from samplerkit.loading.state import _checksum


class Numbers:
    """Sample i is i; notes the epoch that it was told."""

    def __init__(self, size):
        self.size = size
        self.epoch = None

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index, self.epoch

    def set_epoch(self, epoch):
        self.epoch = epoch


class Drawn(Numbers):
    """Sample i is what three random generators give in its process."""

    def __getitem__(self, index):
        return torch.rand(()).item(), np.random.random(), random.random()  # noqa: NPY002


class Deadly(Numbers):
    """Sample `deadly` kills the process that reads it."""

    def __getitem__(self, index):
        if index == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


class Broken(Numbers):
    """Sample 7 cannot be read."""

    def __getitem__(self, index):
        if index == 7:
            raise OSError("sample 7 is damaged")
        return index


class InBatches(Numbers):
    """Notes what reaches `__getitems__`."""

    def __getitems__(self, ids):
        assert isinstance(ids, np.ndarray)
        assert ids.dtype == np.int64
        return ids.tolist()


def as_lists(batch):
    return batch


def ids_of(loader):
    return [[index for index, _ in batch] for batch in loader]


def numbers_loader(size=10, **options):
    sampler = options.pop("sampler", sk.RandomSampler(seed=3))
    return sk.Loader(Numbers(size), sampler, **{"batch_size": 3, "collate_fn": as_lists, **options})


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_any_number_of_workers_gives_the_order_of_the_sampler(workers):
    with numbers_loader(20, num_workers=workers) as loader:
        for epoch in range(2):
            order = np.asarray(sk.RandomSampler(seed=3).order(20, epoch)).tolist()
            assert sum(ids_of(loader), []) == order


@pytest.mark.parametrize("persistent", [False, True])
def test_the_epoch_reaches_the_dataset_in_its_worker(persistent):
    with numbers_loader(num_workers=2, persistent_workers=persistent) as loader:
        for epoch in range(3):
            assert {seen for batch in loader for _, seen in batch} == {epoch}


def test_a_finished_epoch_moves_on_and_a_set_epoch_holds():
    loader = numbers_loader()
    first, second = ids_of(loader), ids_of(loader)
    assert first != second
    loader.set_epoch(0)
    assert ids_of(loader) == first
    assert loader.epoch == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"run_ahead": True}, {"after_break": "continue"}])
def test_a_trainer_that_counts_the_batches_reads_the_next_epoch_next(workers, options):
    with numbers_loader(num_workers=workers, **options) as loader:
        for epoch in range(3):
            batches = iter(loader)
            read = [next(batches) for _ in range(len(loader))]  # as Lightning does: no StopIteration
            order = np.asarray(sk.RandomSampler(seed=3).order(10, epoch)).tolist()
            assert [index for batch in read for index, _ in batch] == order
            assert loader.state_dict()["epoch"] == epoch + 1


def test_lightning_finds_set_epoch_at_the_sampler_of_the_batch_sampler():
    loader = numbers_loader()
    loader.batch_sampler.sampler.set_epoch(3)
    loader.batch_sampler.set_epoch(loader.epoch + 1)
    assert loader.epoch == 4


@pytest.mark.parametrize(("after_break", "begins_at"), [("restart", 0), ("continue", 2)])
def test_after_an_early_break_the_epoch_begins_anew_or_goes_on(after_break, begins_at):
    whole = ids_of(numbers_loader())
    loader = numbers_loader(after_break=after_break)
    for step, _ in enumerate(loader):
        if step == 1:
            break
    assert loader.state_dict()["position"] == 6
    assert ids_of(loader) == whole[begins_at:]
    assert loader.epoch == 1


def test_an_iterator_that_was_replaced_says_so():
    loader = numbers_loader()
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    with pytest.raises(sk.StateError, match="newer"):
        next(first)


def test_prefetched_batches_do_not_count_as_delivered():
    with numbers_loader(60, num_workers=2, prefetch_factor=4) as loader:
        batches = iter(loader)
        next(batches)
        time.sleep(0.2)
        assert loader.state_dict()["position"] == 3


def test_set_epoch_with_the_restored_epoch_keeps_the_restored_position():
    loader = numbers_loader()
    state = loader.state_dict(step=2)
    resumed = numbers_loader()
    resumed.load_state_dict(state)
    resumed.set_epoch(0)
    assert ids_of(resumed) == ids_of(loader)[2:]


def test_set_epoch_during_an_iteration_holds_from_its_end():
    loader = numbers_loader()
    for batch in loader:
        assert batch
        loader.set_epoch(5)
    assert loader.epoch == 5
    assert loader.state_dict()["position"] == 0


def test_a_chain_of_twenty_resumes_loses_and_repeats_nothing():
    got = []
    state = numbers_loader(200, batch_size=2).state_dict()
    for resume in range(20):
        batch_size = 1 + resume % 5
        loader = numbers_loader(200, batch_size=batch_size, num_workers=0)
        loader.load_state_dict(json.loads(json.dumps(state)))
        for batch in loader:
            got += [index for index, _ in batch]
            if loader.step == 1 + resume % 3:
                break
        state = loader.state_dict()
    assert got == np.asarray(sk.RandomSampler(seed=3).order(200)).tolist()[: len(got)]
    assert len(got) == state["position"]


def test_pads_can_be_told_from_samples():
    loaders = [numbers_loader(10, world=sk.World(4, rank), batch_size=2) for rank in range(4)]
    kept = []
    for loader in loaders:
        for batch in loader:
            pads = loader.pads(loader.step - 1)
            kept += [index for (index, _), pad in zip(batch, pads, strict=True) if not pad]
    assert sorted(kept) == list(range(10))
    assert {len(loader) for loader in loaders} == {2}


def test_a_chain_without_distributed_is_dealt_and_one_world_reads_everything():
    dealt = [ids_of(numbers_loader(9, world=sk.World(3, rank))) for rank in range(3)]
    assert sorted(sum(sum(dealt, []), [])) == list(range(9))
    assert sorted(sum(ids_of(numbers_loader(9, world=sk.World(1, 0))), [])) == list(range(9))


def test_weighted_draws_are_dealt_without_overlap():
    sampler = sk.WeightedRandomSampler(np.arange(1, 101), num_samples=40, replacement=False)
    dealt = [ids_of(numbers_loader(100, sampler=sampler, world=sk.World(4, rank))) for rank in range(4)]
    flat = sum(sum(dealt, []), [])
    assert len(flat) == len(set(flat)) == 40


def test_whole_batches_reach_getitems_as_arrays():
    loader = sk.Loader(InBatches(10), sk.SequentialSampler(), batch_size=4, collate_fn=as_lists)
    assert list(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_workers_draw_differently_and_alike_after_a_restart():
    def drawn(rank):
        loader = sk.Loader(
            Drawn(8),
            sk.RandomSampler(seed=1),
            batch_size=2,
            num_workers=2,
            world=sk.World(2, rank),
            collate_fn=as_lists,
        )
        with loader:
            return [list(loader) for _ in range(2)]

    once, again, other = drawn(0), drawn(0), drawn(1)
    assert once == again
    values = [value for epochs in (once, other) for epoch in epochs for batch in epoch for value in batch]
    assert len({v for value in values for v in value}) == 3 * len(values)


def test_the_process_wide_random_state_is_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    with numbers_loader(num_workers=2) as loader:
        ids_of(loader)
    ids_of(numbers_loader())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # noqa: NPY002


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_dataset_is_raised_at_its_position(workers):
    loader = sk.Loader(Broken(20), sk.SequentialSampler(), batch_size=3, num_workers=workers)
    received = []
    with loader, pytest.raises(OSError, match="sample 7 is damaged"):
        for batch in loader:
            received += batch.tolist()
    assert received == [0, 1, 2, 3, 4, 5]
    assert loader.state_dict()["position"] == 6


@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_is_a_typed_error_within_five_seconds(persistent):
    loader = sk.Loader(
        Deadly(100), sk.SequentialSampler(), batch_size=2, num_workers=2, persistent_workers=persistent
    )
    received = []
    with loader, pytest.raises(sk.WorkerError, match="-9"):
        for batch in loader:
            received += batch.tolist()
            start = time.monotonic()
    assert time.monotonic() - start < 5
    assert received == list(range(len(received)))
    assert loader.state_dict()["position"] == len(received)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("end", ["close", "break"])
def test_closing_and_breaking_end_the_workers(persistent, end):
    loader = numbers_loader(60, num_workers=2, persistent_workers=persistent)
    batches = iter(loader)
    next(batches)
    pids = loader.worker_pids
    if end == "break":
        del batches
        if persistent:
            assert len(ids_of(loader)) == 20  # the same workers, from the beginning
            assert loader.worker_pids == pids
    if end == "close" or persistent:
        loader.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    if end == "close":
        with pytest.raises(sk.StateError, match="close"):
            next(batches)
    assert len(ids_of(loader)) == 20
    loader.close()


class Slow(Numbers):
    """Each sample takes a minute."""

    def __getitem__(self, index):
        if index >= 4:
            time.sleep(60)
        return index


def test_a_break_does_not_wait_for_a_slow_sample():
    for _ in sk.Loader(Slow(20), sk.SequentialSampler(), batch_size=2, num_workers=2):
        start = time.monotonic()
        break
    assert time.monotonic() - start < 2.5


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_fifty_epochs_leave_no_thread_and_no_descriptor_behind():
    loader = numbers_loader(6, num_workers=1)
    with loader:
        ids_of(loader)
        before = threading.active_count(), open_descriptors()
        for _ in range(50):
            ids_of(loader)
    end = time.monotonic() + 5
    while time.monotonic() < end and threading.active_count() > before[0]:
        time.sleep(0.01)
    assert threading.active_count() <= before[0]
    assert open_descriptors() <= before[1]


@pytest.mark.parametrize(
    ("option", "mend"),
    [("shuffle", "shuffle mode"), ("batch_sampler", "batch_size"), ("in_order", "order of the sampler")],
)
def test_options_that_the_sampler_decides_are_refused_with_the_mend(option, mend):
    with pytest.raises(ValueError, match=mend):
        sk.Loader([1, 2], sk.SequentialSampler(), batch_size=1, **{option: True})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"worker": 2}, TypeError, "unexpected keyword argument 'worker'"),
        ({"prefetch_factor": 2}, ValueError, "multiprocessing"),
        ({"persistent_workers": True}, ValueError, "num_workers > 0"),
    ],
)
def test_options_that_torch_refuses_are_refused_at_once(options, error, message):
    with pytest.raises(error, match=message) as caught:
        sk.Loader([1, 2], sk.SequentialSampler(), batch_size=1, **options)
    assert isinstance(caught.value, sk.SamplerkitError)


def test_a_loader_that_could_not_start_can_still_load_a_state():
    loader = sk.Loader(
        Numbers(6),
        sk.SequentialSampler(),
        batch_size=2,
        num_workers=1,
        multiprocessing_context="spawn",
        collate_fn=lambda batch: batch,  # cannot be sent to a process
    )
    with pytest.raises(Exception, match="pickle"):
        next(iter(loader))
    loader.load_state_dict(loader.state_dict(step=1))
    assert loader.ids(0).tolist() == [2, 3]


def test_a_sampler_of_torchs_is_refused_with_the_mend():
    with pytest.raises(TypeError, match="IterSampler"):
        sk.Loader([1, 2], sampler=torch.utils.data.SequentialSampler([1, 2]), batch_size=1)


def test_without_a_sampler_a_dataset_is_read_in_its_own_order():
    numbers = Numbers(20)
    assert sk.Loader(numbers, batch_size=5).ids(1).tolist() == [5, 6, 7, 8, 9]
    numbers.default_partial_size = 7
    recipe = sk.RandomSampler(shuffle="partial", partial_size=7)
    expected = list(recipe.order(20))
    assert sk.Loader(numbers, batch_size=20).ids(0).tolist() == expected
    assert list(sk.TorchSampler(None, numbers)) == expected


def test_the_figures_of_an_epoch_tell_how_long_the_loop_waited():
    class Unhurried(Numbers):
        stats = None

        def __getitem__(self, index):
            time.sleep(0.005)
            return index

    loader = sk.Loader(Unhurried(12), sk.SequentialSampler(), batch_size=3)
    for _ in loader:
        time.sleep(0.01)
    stats = loader.stats
    assert (stats.epoch, stats.batches, stats.skipped) == (0, 4, 0)
    assert stats.total_wait > 12 * 0.005
    assert stats.longest_wait + stats.first_wait < stats.total_wait < stats.seconds
    assert stats.seconds > 12 * 0.005 + 3 * 0.01
    assert stats.to_dict()["waiting"] == stats.total_wait / stats.seconds


def test_the_fingerprint_names_the_order_and_nothing_of_the_job():
    named = numbers_loader(world=sk.World(2, 1)).fingerprint
    assert numbers_loader(world=sk.World(2, 0), batch_size=7).fingerprint == named
    assert numbers_loader(sampler=sk.RandomSampler(seed=4), world=sk.World(2, 1)).fingerprint != named
    assert numbers_loader(11, world=sk.World(2, 1)).fingerprint != named


def test_drop_last_means_drop():
    assert numbers_loader(drop_last=True).tail == "drop"
    assert [len(batch) for batch in numbers_loader(drop_last=True)] == [3, 3, 3]


def test_resuming_is_a_seek_for_a_billion_samples():
    state = sk.Loader(Numbers(10**9), sk.RandomSampler(seed=3), batch_size=256).state_dict(step=3_000_000)
    assert len(json.dumps(state)) < 4096
    resumed = sk.Loader(Numbers(10**9), sk.RandomSampler(seed=3), batch_size=256, collate_fn=as_lists)
    resumed.load_state_dict(state)
    order = sk.RandomSampler(seed=3).order(10**9)
    first = [index for index, _ in next(iter(resumed))]
    assert first == order[768_000_000:768_000_256].tolist()


def changed(state, **values):
    """A saved state with other values and a checksum that fits."""
    body = {k: v for k, v in {**state, **values}.items() if k not in ("samplerkit", "checksum")}
    return {"samplerkit": "loader", **body, "checksum": _checksum(body)}


OTHERS = {
    "dataset": lambda: numbers_loader(11),
    "seed": lambda: numbers_loader(sampler=sk.RandomSampler(seed=4)),
    "sampler": lambda: numbers_loader(sampler=sk.RandomSampler(seed=3, shuffle="partial")),
    "tail": lambda: numbers_loader(tail="ragged"),
}


@pytest.mark.parametrize("field", OTHERS)
def test_a_state_of_another_run_is_refused_by_field_and_can_be_allowed(field):
    state = numbers_loader().state_dict(step=1)
    with pytest.raises(sk.StateError, match=field) as caught:
        OTHERS[field]().load_state_dict(state)
    assert caught.value.field == field
    assert caught.value.saved != caught.value.current
    allowed = OTHERS[field]()
    allowed.load_state_dict(state, allow={field})
    assert allowed.state_dict()["position"] == 3


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: {}, "not the state"),
        (lambda state: None, "not the state"),
        (lambda state: {**state, "position": 4}, "checksum"),
        (lambda state: {**state, "checksum": None}, "checksum"),
        (lambda state: {k: v for k, v in state.items() if k != "lanes"}, "missing or unknown"),
        (lambda state: {**state, "more": 1}, "missing or unknown"),
        (lambda state: changed(state, schema=2), "newer"),
        (lambda state: changed(state, schema=0), "not known"),
        (lambda state: changed(state, position=11), "outside of an order of 10"),
        (lambda state: changed(state, position=-1), "outside of an order of 10"),
        (lambda state: changed(state, algorithm="samplerkit-0"), "algorithm"),
    ],
)
def test_a_damaged_or_newer_state_is_refused(damage, message):
    loader = numbers_loader()
    with pytest.raises(sk.StateError, match=message):
        loader.load_state_dict(damage(loader.state_dict(step=1)))
    assert loader.state_dict()["position"] == 0


def test_a_state_cannot_be_loaded_while_an_iteration_is_under_way():
    loader = numbers_loader()
    state = loader.state_dict()
    batches = iter(loader)
    next(batches)
    with pytest.raises(sk.StateError, match="under way"):
        loader.load_state_dict(state)


def test_a_state_survives_json_and_a_safe_torch_load(tmp_path):
    state = numbers_loader().state_dict(step=2)
    torch.save(state, tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True) == state
    assert json.loads(json.dumps(state)) == state


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_distributed_checkpoint_saves_on_one_number_of_ranks_and_loads_on_another(tmp_path):
    four = numbers_loader(100, world=sk.World(4, 1))
    batches = iter(four)
    for _ in range(3):
        next(batches)
    torch.distributed.checkpoint.save({"loader": four}, checkpoint_id=tmp_path, no_dist=True)
    two = numbers_loader(100, world=sk.World(2, 0))
    torch.distributed.checkpoint.load({"loader": two}, checkpoint_id=tmp_path, no_dist=True)
    assert two.state_dict() == four.state_dict()
    order = np.asarray(sk.RandomSampler(seed=3).order(100)).tolist()
    assert [index for index, _ in next(iter(two))] == order[36:42:2]


INTERRUPTED = """
import json, time, samplerkit as sk
loader = sk.Loader(range(10_000), sk.SequentialSampler(), batch_size=2, num_workers=2)
try:
    for batch in loader:
        print("step", flush=True)
        time.sleep(0.01)
except KeyboardInterrupt:
    print(json.dumps([loader.step, loader.state_dict()]), flush=True)
"""


def test_ctrl_c_ends_the_loop_within_a_second_and_the_state_is_valid():
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        for _ in range(5):
            process.stdout.readline()
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        printed = process.stdout.read().splitlines()
        seconds = time.monotonic() - start
        assert process.wait(timeout=10) == 0
    step, state = json.loads(printed[-1])
    assert seconds < 2.5
    assert state["position"] == 2 * step
    resumed = sk.Loader(range(10_000), sk.SequentialSampler(), batch_size=2)
    resumed.load_state_dict(state)
    assert next(iter(resumed)).tolist() == [2 * step, 2 * step + 1]


def test_an_order_that_was_read_before_a_state_was_loaded_does_not_outlive_it():
    def files_loader(ranks):
        sampler = sk.DistributedSampler(shuffle="files", seed=5)
        return sk.Loader(sk.Layout([7, 5, 9]), sampler, batch_size=3, world=sk.World(ranks, 0))

    one, two = files_loader(1), files_loader(2)
    assert list(one.order) != list(two.order)  # one lane, two lanes
    two.load_state_dict(one.state_dict(step=2))
    assert list(two.order) == list(one.order)
