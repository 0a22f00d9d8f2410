"""Reading past the end of an epoch, ahead of the loop."""

import pytest

import samplerkit as sk
from tests.loading.numbers import Numbers, epoch_ids, numbers_loader
from tests.loading.worker_kinds import with_workers
from tests.waiting import wait_until


def loader(**options):
    return numbers_loader(12, sampler=sk.RandomSampler(seed=5), run_ahead=True, **options)


def read(loader):
    return [sample for batch in loader for sample in batch]


def expected(epoch):
    return [(index, epoch) for index in epoch_ids(12, epoch, seed=5)]


@pytest.mark.parametrize("workers", [0, 1, 2, "2 threads"])
def test_epochs_follow_one_another_with_the_same_workers(workers):
    with loader(**with_workers(workers)) as running:
        pids = set()
        for epoch in range(4):
            running.set_epoch(epoch)  # as trainers do; it changes nothing
            assert read(running) == expected(epoch)
            assert running.state_dict()["epoch"] == epoch + 1
            pids |= set(running.worker_pids)
        assert len(pids) == (workers if isinstance(workers, int) else 0)


def test_the_next_epoch_is_started_while_the_loop_is_at_the_end_of_this_one():
    epochs_set = []

    class Recording(Numbers):
        def set_epoch(self, epoch):
            epochs_set.append(epoch)

    running = sk.Loader(Recording(12), sk.RandomSampler(seed=5), batch_size=3, collate_fn=list)
    with sk.DeviceLoader(running, "cpu", run_ahead=True) as ahead:
        for epoch in range(3):
            assert [index for index, _ in read(ahead)] == [index for index, _ in expected(epoch)]
            wait_until(lambda: len(epochs_set) == epoch + 2)  # noqa: B023  # called at once
    assert epochs_set == [0, 1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"device": "cpu"}], ids=str)
@pytest.mark.parametrize(
    ("tail", "ranks", "batch_size", "position"),
    [("drop", 1, 5, 8), ("ragged", 2, 4, 11), ("ragged", 4, 3, 10)],
)
def test_an_epoch_with_nothing_left_to_read_is_followed_by_full_ones(
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


def test_an_epoch_without_steps_among_others_is_passed_over():
    class Growing:
        """Yields 6, 2, 2, 6, 2, 2, ... ids."""

        def set_epoch(self, epoch):
            self.size = 2 if epoch % 3 else 6

        def __iter__(self):
            return iter(range(self.size))

    sampler = sk.IterSampler(Growing())
    with sk.Loader(range(6), sampler, batch_size=3, tail="drop", run_ahead=True) as running:
        assert [len(list(running)) for _ in range(7)] == [2, 0, 0, 2, 0, 0, 2]
