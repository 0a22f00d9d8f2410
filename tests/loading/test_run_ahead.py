"""Reading over the border of an epoch, before the loop asks."""

from __future__ import annotations

import pytest

import samplerkit as sk
from tests.loading.numbers import Numbers, numbers_loader, whole
from tests.loading.worker_kinds import beside
from tests.waiting import wait_until


def loader(**options):
    return numbers_loader(12, sampler=sk.RandomSampler(seed=5), run_ahead=True, **options)


def read(of):
    return [sample for batch in of for sample in batch]


def expected(epoch):
    return [(index, epoch) for index in whole(12, epoch, seed=5)]


@pytest.mark.parametrize("workers", [0, 1, 2, "2 threads"])
def test_epochs_follow_one_another_with_the_same_workers(workers):
    with loader(**beside(workers)) as running:
        pids = set()
        for epoch in range(4):
            running.set_epoch(epoch)  # as trainers do; it says nothing new
            assert read(running) == expected(epoch)
            assert running.state_dict()["epoch"] == epoch + 1
            pids |= set(running.worker_pids)
        assert len(pids) == (workers if isinstance(workers, int) else 0)


def test_the_next_epoch_is_begun_while_the_loop_is_at_the_end_of_this_one():
    begun = []

    class Told(Numbers):
        def set_epoch(self, epoch):
            begun.append(epoch)

    running = sk.Loader(Told(12), sk.RandomSampler(seed=5), batch_size=3, collate_fn=list)
    with sk.DeviceLoader(running, "cpu", run_ahead=True) as ahead:
        for epoch in range(3):
            assert [index for index, _ in read(ahead)] == [index for index, _ in expected(epoch)]
            wait_until(lambda: len(begun) == epoch + 2)  # noqa: B023  # called at once
    assert begun == [0, 1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"device": "cpu"}], ids=str)
@pytest.mark.parametrize(
    ("tail", "ranks", "batch_size", "position"),
    [("drop", 1, 5, 8), ("ragged", 2, 4, 11), ("ragged", 4, 3, 10)],
)
def test_an_epoch_with_nothing_left_to_read_is_followed_by_whole_ones(
    tail, ranks, batch_size, position, options
):
    def of_rank(**more):
        world = sk.World(ranks, ranks - 1)
        return sk.Loader(
            range(12), sk.RandomSampler(seed=5), batch_size=batch_size, tail=tail, world=world, **more
        )

    saved = sk.Loader(range(12), sk.RandomSampler(seed=5), batch_size=1, tail=tail).state_dict(step=position)
    with of_rank(run_ahead=True, **options) as running:
        running.load_state_dict(saved)
        for epoch in range(3):
            plain = of_rank()
            plain.set_epoch(epoch)
            read_ids = [batch.tolist() for batch in running]
            assert read_ids == ([] if epoch == 0 else [batch.tolist() for batch in plain])
            assert running.epoch == epoch + 1


def test_an_epoch_of_no_steps_among_others_is_passed():
    class Growing:
        """Yields 6, 2, 2, 6, 2, 2, ... ids."""

        def set_epoch(self, epoch):
            self.size = 2 if epoch % 3 else 6

        def __iter__(self):
            return iter(range(self.size))

    sampler = sk.IterSampler(Growing())
    with sk.Loader(range(6), sampler, batch_size=3, tail="drop", run_ahead=True) as running:
        assert [len(list(running)) for _ in range(7)] == [2, 0, 0, 2, 0, 0, 2]
