"""A loader that was iterated can be deep-copied and pickled: the copy is independent."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import samplerkit as sk
from tests.loading.device import kinds
from tests.loading.worker_kinds import THREADS
from tests.numbers import Damaged

IDS = list(range(23))


def pickled(loader):
    return pickle.loads(pickle.dumps(loader))  # noqa: S301  # ours


def plain(**options):
    return sk.Loader(IDS, sk.RandomSampler(seed=3), batch_size=4, **options)


def packed():
    recipe = sk.PackBatches(12, lengths=[3, 5, 1, 9, 2] * 4)
    return sk.Loader(IDS[:20], sk.RandomSampler(seed=3), batches=recipe, tail="split", collate_fn=list)


def on_device(loader, **options):
    return sk.DeviceLoader(loader, "cpu", **options)


def by_torch():
    return torch.utils.data.DataLoader(
        IDS, batch_sampler=sk.TorchBatchSampler(sk.TorchSampler(sk.RandomSampler(seed=3), IDS), 4)
    )


LOADERS = {
    "plain": plain,
    "continues": lambda: plain(after_break="continue"),
    "persistent workers": lambda: plain(num_workers=1, persistent_workers=True),
    "threads": lambda: plain(**THREADS),
    "device": lambda: plain(device="cpu"),
    "run ahead": lambda: plain(num_workers=1, run_ahead=True),
    "packs": packed,
    "tensors": lambda: sk.TensorLoader(torch.arange(23), sk.RandomSampler(seed=3), batch_size=4),
    "device loader": lambda: on_device(plain(), run_ahead=True),
    "device loader of torch's": lambda: on_device(by_torch()),
    "device loader of a sampler without a state": lambda: on_device(kinds.plain(), run_ahead=True),
}


def read(batches):
    return [torch.as_tensor(batch).tolist() for batch in batches]


@pytest.mark.parametrize(
    ("name", "copied"), [*((name, pickled) for name in LOADERS), ("plain", copy.deepcopy)]
)
def test_a_copy_has_the_position_of_the_loader_and_neither_moves_the_other(name, copied):
    loader = LOADERS[name]()
    close = getattr(loader, "close", lambda: None)
    try:
        unstarted = copied(loader)
        assert unstarted.state_dict() == loader.state_dict()
        batches = iter(loader)
        received = read(next(batches) for _ in range(2))
        mid_epoch = copied(loader)
        assert mid_epoch.state_dict() == loader.state_dict()
        mid_epoch.load_state_dict(loader.state_dict())  # no iteration of its own is under way
        rest = read(mid_epoch)
        assert read(batches) == rest
        assert read(unstarted) == received + rest
        assert sorted(sum(received + rest, [])) == IDS[: len(sum(received + rest, []))]
        assert mid_epoch.state_dict() == loader.state_dict()

        for _ in loader:
            break
        after_break = copied(loader)
        assert after_break.state_dict() == loader.state_dict()
        assert read(after_break) == read(loader)

        at_the_end = copied(loader)
        assert at_the_end.state_dict() == loader.state_dict()
        assert read(at_the_end) == read(loader)
    finally:
        close()


def test_a_copy_knows_what_was_skipped():
    loader = sk.Loader(Damaged(sk.Layout(12), [1]), sk.SequentialSampler(), batch_size=3, bad_samples="skip")
    next(iter(loader))
    copied = pickled(loader)
    assert copied.skipped == loader.skipped != ()
    assert copied.ids(0).tolist() == loader.ids(0).tolist() == [0, 2]
