"""Windows of tokens through a Loader: in batches, workers, mixtures with passes, trees and resumed runs."""

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.order.deal import World

ALONE = World(1, 0)
WEIGHTS = {"big": 0.5, "small": 0.5}


def corpus(folder, name="a", tokens=1000, dtype=np.uint16):
    """A file whose tokens are their places, or all one number."""
    np.save(folder / f"{name}.npy", np.arange(tokens).astype(dtype))
    return folder / f"{name}.npy"


def test_a_loader_gives_tensors_of_rows(tmp_path):
    data = sk.TokenDataset(corpus(tmp_path), 10, seed=1)
    with sk.Loader(data, sk.RandomSampler(seed=3), batch_size=8, world=ALONE) as loader:
        batches = list(loader)
    assert all(batch.dtype == torch.int64 and batch.shape[1] == 11 for batch in batches)
    assert sorted(torch.cat(batches)[:, :-1].reshape(-1).tolist()) == list(range(1000))


def test_a_loader_gives_a_dict_of_tensors_where_there_are_several_outputs(tmp_path):
    data = sk.TokenDataset(
        corpus(tmp_path), 10, documents=7, outputs=("tokens", "labels", "position_ids", "cu_seqlens")
    )
    with sk.Loader(data, sk.SequentialSampler(), batch_size=4, world=ALONE) as loader:
        batch = next(iter(loader))
    assert {name: tuple(value.shape) for name, value in batch.items() if name != "cu_seqlens"} == {
        "tokens": (4, 10),
        "labels": (4, 10),
        "position_ids": (4, 10),
    }
    assert batch["cu_seqlens"].dtype == torch.int32
    assert int(batch["cu_seqlens"][-1]) == 40


@pytest.mark.parametrize(("most", "start"), [(2, "fork"), (1, "spawn")])
def test_workers_read_what_one_process_reads(tmp_path, most, start):
    data = sk.TokenDataset(corpus(tmp_path), 10, seed=1)
    read = []
    for workers in (0, most):
        # A worker that is spawned imports torch: those stay for the second epoch.
        stay = {"multiprocessing_context": start, "persistent_workers": start == "spawn"}
        options = stay if workers else {}
        with sk.Loader(
            data, sk.RandomSampler(seed=3), batch_size=16, num_workers=workers, world=ALONE, **options
        ) as loader:
            read.append([batch.tolist() for epoch in range(2) for batch in loader])
    assert read[0] == read[1]
    first, second = read[0][: len(read[0]) // 2], read[0][len(read[0]) // 2 :]
    assert first != second
    for epoch in (first, second):
        assert sorted(token for batch in epoch for row in batch for token in row[:-1]) == list(range(1000))


def test_each_pass_over_a_source_has_a_phase_and_keeps_it_in_the_next_epoch(tmp_path):
    big, small = corpus(tmp_path, "big"), tmp_path / "small.npy"
    np.save(small, np.arange(5000, 5100, dtype=np.uint16))
    data = sk.TokenDataset({"big": big, "small": small}, 10, seed=7)
    sampler = sk.MixtureSampler({"big": None, "small": None}, weights=WEIGHTS, stop="all", seed=2)
    with sk.Loader(data, sampler, batch_size=7, world=ALONE) as loader:
        rows = torch.cat([batch for _ in range(2) for batch in loader]).numpy()
        steps = len(loader)
    assert len(rows) > 7 * steps
    rows = rows[rows[:, 0] >= 5000]
    assert len(rows) > 150
    passes = [rows[begin : begin + 10] for begin in range(0, len(rows) - 9, 10)]
    for one in passes:
        assert sorted(one[:, :-1].reshape(-1).tolist()) == list(range(5000, 5100))
    assert len({int(one[:, 0].min()) % 10 for one in passes}) > 3


def test_a_run_of_tokens_is_resumed_on_other_ranks(tmp_path):
    data = sk.TokenDataset(corpus(tmp_path, tokens=4000), 10, seed=1)

    def loader(ranks, rank):
        return sk.Loader(
            data, sk.RandomSampler(seed=3), batch_size=24 // ranks, world=World(ranks, rank), tail="ragged"
        )

    read = []
    for rank in range(3):
        with loader(3, rank) as one:
            batches = iter(one)
            read += [next(batches) for _ in range(5)]
            state = one.state_dict()
    for rank in range(2):
        with loader(2, rank) as one:
            one.load_state_dict(state)
            read += list(one)
    assert sorted(torch.cat(read)[:, :-1].reshape(-1).tolist()) == list(range(4000))


def test_a_bad_file_leaves_the_others_where_bad_samples_are_skipped(tmp_path):
    files = [corpus(tmp_path, name) for name in ("a", "b")]
    data = sk.TokenDataset(files, 10, outputs=("tokens", "labels"))
    assert len(data) == 200
    files[1].write_bytes(files[1].read_bytes()[:-1])
    with sk.Loader(data, sk.SequentialSampler(), batch_size=40, world=ALONE, bad_samples="skip") as loader:
        batches = iter(loader)
        rows = torch.cat([next(batches)["tokens"] for _ in range(2)])
    assert rows.shape == (80, 10)
