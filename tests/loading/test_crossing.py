"""Batches sent from worker processes: small tensors within the message, and all of them unchanged."""

import errno
import socket
import threading
from collections import namedtuple
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import samplerkit as sk
from samplerkit.loading.workers import loader_workers
from samplerkit.loading.workers.protocol import Answer
from samplerkit.loading.workers.worker_side import SMALL
from tests.numbers import Made, Numbers

Pair = namedtuple("Pair", "left right")  # torch makes batches of those without types too


@dataclass
class Named:
    """A batch that no collate function of torch makes."""

    tokens: torch.Tensor
    text: str


class Tagged(torch.Tensor):
    """A subclass of torch's tensor."""


def every_kind(samples: list[int]) -> Any:
    """A batch of every kind of content; its values follow from the samples."""
    rows = torch.tensor(samples).repeat(3, 1).t()
    return {
        "tuple": (rows, rows.float().to(torch.bfloat16)),
        "pair": Pair(rows > 3, [rows.double()]),
        "dataclass": Named(rows + 1, "text"),
        "turned": rows.t(),
        "every second": rows[:, ::2],
        "number": torch.tensor(samples[0]),
        "empty": torch.empty(0, 4),
        "parameter": torch.nn.Parameter(rows.float()),
        "subclass": rows.as_subclass(Tagged),
        "array": rows.numpy(),
        "large": torch.full((SMALL // 4 + 1,), float(samples[0])),
    }


def leaves(item: Any) -> list[Any]:
    """The contents of a batch, in order."""
    if isinstance(item, dict):
        item = list(item.values())
    if isinstance(item, Named):
        item = [item.tokens, item.text]
    return [leaf for child in item for leaf in leaves(child)] if isinstance(item, list | tuple) else [item]


@pytest.mark.parametrize("persistent", [False, True])
def test_all_contents_of_a_batch_arrive_unchanged(persistent: bool) -> None:
    def batches(**options: Any) -> list[Any]:
        loader = sk.Loader(
            range(12), sk.RandomSampler(seed=1), batch_size=4, collate_fn=every_kind, **options
        )
        with loader:
            return list(loader)

    received = batches(num_workers=2, persistent_workers=persistent)
    for batch, expected in zip(received, batches(), strict=True):
        assert type(batch["pair"]) is Pair
        for leaf, expected_leaf in zip(leaves(batch), leaves(expected), strict=True):
            assert type(leaf) is type(expected_leaf)
            if isinstance(leaf, torch.Tensor):
                assert torch.equal(leaf, expected_leaf)
                assert (leaf.dtype, leaf.stride()) == (expected_leaf.dtype, expected_leaf.stride())
                assert leaf.requires_grad == expected_leaf.requires_grad
            else:
                assert np.array_equal(leaf, expected_leaf)


def views(samples: list[int]) -> list[torch.Tensor]:
    """One tensor twice, and two views of it."""
    rows = torch.tensor(samples)
    return [rows, rows, rows[1:], rows.view(2, 2)]


def test_views_of_one_tensor_stay_views_of_one_and_can_be_written_to() -> None:
    with sk.Loader(range(8), batch_size=4, num_workers=1, collate_fn=views) as loader:
        for rows, again, rest, square in loader:
            assert again is rows
            rows[1] = 77
            assert rest[0] == square[0, 1] == 77


def rows_of(width: int) -> Made:
    """Rows of a given number of float32; the first tensor of each sample is small."""
    return Made(64, lambda at: {"label": torch.tensor(at), "row": torch.full((width,), float(at))})


def by_torch(samples: list[Any]) -> Any:
    """A custom collate function that calls torch's."""
    return default_collate(samples)


def count_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("collate", [None, by_torch])
def test_small_tensors_are_in_no_shared_memory_and_hold_no_descriptor(collate: Any) -> None:
    with sk.Loader(rows_of(8), batch_size=2, num_workers=2, collate_fn=collate) as loader:
        batches = iter(loader)
        received = [next(batches)]
        before = count_descriptors()
        received += batches
        # torch holds an open file for each tensor that is in shared memory.
        assert count_descriptors() <= before
    assert len(received) == 32
    assert not any(tensor.is_shared() for batch in received for tensor in batch.values())


@pytest.mark.parametrize("are_refused", [False, True])
def test_large_tensors_are_in_shared_memory_and_small_ones_are_not(
    monkeypatch: pytest.MonkeyPatch, are_refused: bool
) -> None:
    """Or are copied, where so many descriptors are in flight that the system refuses more."""

    def refuse(*_: Any) -> int:
        raise OSError(errno.ETOOMANYREFS, "Too many references: cannot splice")

    if are_refused:
        monkeypatch.setattr(socket, "send_fds", refuse)
    with sk.Loader(rows_of(SMALL // 4), batch_size=2, num_workers=1) as loader:
        batch = next(iter(loader))
    assert batch["row"].is_shared() is not are_refused
    assert not batch["label"].is_shared()
    assert batch["row"][:, 0].tolist() == batch["label"].tolist()


def marked(answer: Answer) -> Answer:
    """Pins nothing, and adds the name of the thread."""
    return replace(answer, batch=[*answer.batch, threading.current_thread().name])


@pytest.mark.parametrize("affine", [False, True])
def test_batches_of_processes_are_pinned_ahead_of_the_loop_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, affine: bool
) -> None:
    monkeypatch.setattr(loader_workers, "current_device", lambda: torch.device("meta"))
    monkeypatch.setattr(Answer, "pin_memory", marked)
    options: dict[str, Any] = {"num_workers": 2, "collate_fn": list, "persistent_workers": True}
    dataset = Numbers(sk.Layout([6, 6]))  # the second batch of four is in both files
    with sk.Loader(dataset, batch_size=4, pin_memory=True, file_affinity=affine, **options) as loader:
        next(iter(loader))
        for _ in range(2):
            batches = list(loader)
            assert [batch[:-1] for batch in batches] == [[*range(4)], [*range(4, 8)], [*range(8, 12)]]
            assert {batch[-1] for batch in batches} == {"samplerkit-device-0"}


def test_what_the_dataset_shares_stays_shared() -> None:
    counter = torch.zeros(1).share_memory_()

    def counted(samples: list[int]) -> Any:
        return counter.add_(len(samples))

    with sk.Loader(range(8), batch_size=4, num_workers=1, collate_fn=counted) as loader:
        last = list(loader)[-1]
    assert last.is_shared()
    assert counter.item() == 8
