"""With `file_affinity` each file is read by one worker; batches, states and errors stay the same."""

import os
from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.loading.sample_fields import batch_of
from samplerkit.loading.workers.batch_maker import BatchMaker
from samplerkit.loading.workers.file_affinity import FileAffinity, joined, upcoming_in_files
from samplerkit.loading.workers.loader_workers import requests_of
from tests.loading.documents import SIZES, Parts

LAYOUT = sk.Layout([7, 9, 0, 3, 12, 5, 8, 10, 1])
MODES = ("false", "global", "files", "infile", "partial")


class Files:
    """Sample i is (i, the draw of it, the process that read it)."""

    layout = LAYOUT

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> tuple[int, float, int]:
        return index, sk.draw_rng().random(), os.getpid()


class Lists(Files):
    """Reads whole batches, as lists of dicts of tensors."""

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "x": torch.full((2,), float(index)), "text": f"<{index}>"}

    def __getitems__(self, ids: np.ndarray) -> Any:
        return [self[index] for index in ids.tolist()]


class Columns(Files):
    """Reads whole batches, as columns: an array, a tensor, and a list in a column of columns."""

    def __getitems__(self, ids: np.ndarray) -> Any:
        return {
            "id": ids,
            "x": torch.from_numpy(ids * 1.5),
            "more": {"text": [f"<{index}>" for index in ids.tolist()]},
        }


class Rows(Files):
    """Reads whole batches, as one array."""

    def __getitems__(self, ids: np.ndarray) -> Any:
        return np.stack([ids, ids**2], axis=1)


class Damaged(Lists):
    """Some samples cannot be read."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise OSError(f"sample {index} is damaged")
        return super().__getitem__(index)


class DamagedColumns(Damaged):
    """Reads whole batches as columns, and fails as a whole."""

    def __getitems__(self, ids: np.ndarray) -> Any:
        samples = super().__getitems__(ids)
        return {name: [sample[name] for sample in samples] for name in ("id", "x", "text")}


class Gapped(Damaged):
    """Leaves these samples out by itself; if all of a batch are missing, it returns sample 0."""

    def read_present(self, ids: np.ndarray) -> Any:
        class PresentSamples(list):
            missing: list[tuple[int, str, str]]
            substitute: int | None = None

        samples = PresentSamples(self[index] for index in ids.tolist() if index not in self.bad)
        samples.missing = [
            (place, "a", "gone") for place, index in enumerate(ids.tolist()) if index in self.bad
        ]
        if not samples:
            samples.append(Lists()[0])
            samples.substitute = 0
        return samples


def sampler_of(mode: str, seed: int = 3) -> sk.RandomSampler | sk.SequentialSampler:
    if mode == "false":
        return sk.SequentialSampler()
    return sk.RandomSampler(shuffle=mode, seed=seed, **({"partial_size": 20} if mode == "partial" else {}))


def plain(value: Any) -> Any:
    """The contents of a batch, as lists."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def read(loader: sk.Loader) -> tuple[list[Any], list[Any], list[Any]]:
    """The batches of an epoch, the ids and pads of each, and the skipped samples."""
    batches, ids = [], []
    for batch in loader:
        batches.append(plain(batch))
        ids.append([loader.ids(loader.step - 1).tolist(), loader.pads(loader.step - 1).tolist()])
    return batches, ids, [(skip.id, skip.place) for skip in loader.skipped]


@pytest.mark.parametrize("mode", MODES)
def test_each_file_is_read_by_one_worker_and_the_draws_stay(mode):
    workers, options = 3, {"batch_size": 5, "collate_fn": list}
    alone = sk.Loader(Files(), sampler_of(mode), **options)
    with sk.Loader(Files(), sampler_of(mode), num_workers=workers, file_affinity=True, **options) as loader:
        readers = defaultdict(set)
        for batch, expected in zip(loader, alone, strict=True):
            assert [sample[:2] for sample in batch] == [sample[:2] for sample in expected]
            for index, _, process in batch:
                readers[int(LAYOUT.file_of(np.array([index]))[0])].add(process)
        assert len(readers) == 8  # one of the nine is empty
        assert all(len(processes) == 1 for processes in readers.values())
        assert len(set.union(*readers.values())) == workers


@pytest.mark.parametrize("dataset", [Columns(), Rows(), DamagedColumns({4}), Gapped({4, 7, 30})])
def test_batches_ids_and_skips_are_those_without_file_affinity_also_after_a_resume(dataset):
    options: dict[str, Any] = {"batch_size": 6, "bad_samples": "skip"}
    expected = read(sk.Loader(dataset, sampler_of("partial"), **options))
    options |= {"num_workers": 2, "file_affinity": True}
    with sk.Loader(dataset, sampler_of("partial"), persistent_workers=True, **options) as loader:
        for _ in loader:  # left early, by workers that live on
            if loader.step == 3:
                state = loader.state_dict()
                break
        assert read(loader)[:2] == expected[:2]
    resumed = sk.Loader(dataset, sampler_of("partial"), **options)
    rest = sk.Loader(dataset, sampler_of("partial"), batch_size=6, bad_samples="skip")
    for loader in (resumed, rest):
        loader.load_state_dict(state)
    with resumed:
        assert read(resumed) == read(rest)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any),
    st.sampled_from(MODES),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(0, 5),
    st.sets(st.integers(0, 53), max_size=9),
    st.sampled_from([Lists, Columns, Rows, Damaged, DamagedColumns, Gapped]),
)
@example([5, 5, 5], MODES[-1], 9, 2, 0, {3, 7, 12}, Damaged)
@settings(max_examples=40, deadline=None)
def test_joined_shares_are_the_batch(sizes, mode, batch_size, workers, steps, bad, kind):
    """No process is started: the shares of all workers are read here."""
    dataset = kind(bad) if issubclass(kind, Damaged) else kind()
    dataset.layout = sk.Layout(sizes)
    loader = sk.Loader(dataset, sampler_of(mode), batch_size=batch_size, bad_samples="skip")
    loader.load_state_dict(loader.state_dict(step=min(steps, len(loader))))
    reading = loader._reading
    maker = BatchMaker(dataset, 0, skips=True, collate=batch_of)
    affinity, owners, firsts, has_read = FileAffinity(dataset.layout, workers), {}, {}, defaultdict(list)
    for request in requests_of(loader._cursor, (), False, reading):
        parts = affinity.shares_of(request)
        for worker, part in parts:
            firsts.setdefault(worker, part)
            has_read[worker].append(part.ids.tolist())
            for file in set(dataset.layout.file_of(part.ids).tolist()):
                assert owners.setdefault(file, worker) == worker
        outcomes = []
        for at_once in (True, False):
            try:
                if at_once or len(parts) == 1:
                    samples = maker.read(request)
                else:
                    shares = [part for _, part in parts]
                    samples = joined(shares, [maker.read(share) for share in shares])
                answer = maker.collated(request, samples)
                skipped = [(skip.id, skip.place, skip.error) for skip in answer.skipped]
                outcomes.append([plain(answer.batch), skipped, answer.substitute])
            except sk.DatasetError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
    for worker, first in firsts.items():
        info = SimpleNamespace(id=worker, num_workers=workers)
        with patch.object(torch.utils.data, "get_worker_info", lambda info=info: info):
            assert [*map(list, upcoming_in_files(first, reading.batches, dataset))] == has_read[worker]


def test_a_file_goes_to_the_worker_with_the_fewest_samples():
    layout = sk.Layout([30, 10, 10, 5, 20])
    affinity = FileAffinity(layout, 2)
    assert [affinity.workers_of(np.array([first]))[0] for first in layout.starts[:-1]] == [0, 1, 1, 1, 1]
    # One file is 30 samples, three are 25 before the last one.


@pytest.mark.parametrize(
    ("recipe", "collate"),
    [(sk.TokenBatches(400, lengths=SIZES), sk.PadCollate()), (sk.PackBatches(64), None)],
    ids=["tokens", "packs of parts"],
)
def test_batches_of_a_recipe_are_cut_too(recipe, collate):
    dataset, options = Parts(), {"batches": recipe, "collate_fn": collate}
    dataset.layout = sk.Layout([30, 50, 40])
    with sk.Loader(dataset, sampler_of("global"), num_workers=2, file_affinity=True, **options) as loader:
        assert read(loader) == read(sk.Loader(dataset, sampler_of("global"), **options))


class Unsent(Files):
    """Returns samples that can be collated, and cannot be sent."""

    def __getitem__(self, index: int) -> Any:
        return lambda: index


def call_each(samples: list[Any]) -> list[int]:
    return [sample() for sample in samples]


class Tables(Files):
    """Returns batches of a type that cannot be joined."""

    def __getitems__(self, ids: np.ndarray) -> Any:
        return frozenset(ids.tolist())


@pytest.mark.parametrize(
    ("dataset", "problem"),
    [
        (Unsent(), "gives a value that cannot be sent from a worker"),
        (Tables(), "gives batches that cannot be joined"),
        (range(20), "has no files that could be spread"),
    ],
)
def test_what_cannot_be_shared_is_refused_and_nothing_hangs(dataset, problem):
    loader = sk.Loader(
        dataset,
        sk.RandomSampler(),
        batch_size=12,
        num_workers=2,
        file_affinity=True,
        collate_fn=call_each if isinstance(dataset, Unsent) else list,
    )
    with loader, pytest.raises(sk.DatasetError, match=problem):
        list(loader)
