"""Megatron's dataset: its samples, token for token, its caches, and both in configs."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.compat import megatron
from tests.corpora import write_tokens


@pytest.fixture
def documents():
    random = np.random.default_rng(7)
    return [random.integers(1, 60000, size).tolist() for size in [9, 0, 30, 1, 0, 25, 14, 3, 40, 11]]


@pytest.fixture
def prefix(tmp_path, documents):
    return write_tokens(tmp_path / "web", documents)


def tokens_of(dataset, id, documents):
    """The tokens that the spans of a sample name."""
    return [
        token
        for _, document, begin, length in dataset.spans(id)
        for token in documents[document][begin : begin + length]
    ]


@pytest.mark.parametrize("extra", [True, False])
@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_rows_hold_the_tokens_of_their_spans(prefix, documents, seed, extra):
    given = {"sequence_length": 8, "random_seed": seed, "add_extra_token_to_sequence": extra}
    dataset = megatron.MegatronDataset(prefix, 40, **given)
    assert len(dataset) >= 40
    rows = dataset.__getitems__(np.arange(len(dataset)))
    assert rows.dtype == np.int64
    assert rows.shape == (len(dataset), 8 + extra)
    for id, row in enumerate(rows):
        assert row.tolist() == tokens_of(dataset, id, documents) == dataset[id].tolist()


def test_a_short_last_sample_of_valid_is_padded(prefix, documents):
    given = {"sequence_length": 8, "split": "1,1", "part": "valid", "pad_token": 65000}
    whole = megatron.MegatronDataset(prefix, **given)
    padded = megatron.MegatronDataset(prefix, **given, drop_last_partial_validation_sequence=False)
    assert len(padded) == len(whole) + 1
    rows = padded.__getitems__(range(len(padded)))
    (short,) = np.flatnonzero((rows == 65000).any(axis=1))
    tokens = tokens_of(padded, short, documents)
    assert rows[short].tolist() == tokens + [65000] * (9 - len(tokens))


def test_workers_read_what_the_process_reads(prefix):
    dataset = megatron.MegatronDataset(prefix, 30, sequence_length=8)
    batches = [
        [batch.tolist() for batch in megatron.loader(dataset, 2, 2, consumed_samples=4, num_workers=workers)]
        for workers in (0, 2)
    ]
    assert batches[0] == batches[1]
    assert len(batches[0]) == (len(dataset) - 4) // 2
    copied = pickle.loads(pickle.dumps(dataset))  # noqa: S301  # our own
    assert (copied[3] == dataset[3]).all()


def test_close_closes_the_files_and_the_dataset_can_be_read_again(prefix):
    dataset = megatron.MegatronDataset(prefix, 30, sequence_length=8)
    first, paths = dataset[3].tolist(), {Path(f"{prefix}.bin"), Path(f"{prefix}.idx")}
    open_paths = {path.resolve() for path in Path("/proc/self/fd").iterdir()}
    dataset.close()
    assert paths <= open_paths
    assert not paths & {path.resolve() for path in Path("/proc/self/fd").iterdir()}
    assert dataset[3].tolist() == first


def test_the_state_of_another_dataset_is_refused(tmp_path, prefix, documents):
    loader = megatron.loader(megatron.MegatronDataset(prefix, 30, sequence_length=8), 2, 1)
    state = loader.state_dict()
    same_sizes = [document[::-1] for document in documents]
    moved = write_tokens(tmp_path / "moved", [documents[2], documents[0], *documents[3:], []])
    write_tokens(tmp_path / "same", same_sizes)
    for prefix_of, changed in [(moved, {}), (prefix, {"random_seed": 5}), (prefix, {"sequence_length": 9})]:
        other = megatron.MegatronDataset(prefix_of, 30, **{"sequence_length": 8, **changed})
        with pytest.raises(sk.StateError, match="dataset"):
            megatron.loader(other, 2, 1).load_state_dict(state)


def cached(folder, prefix, split=None, name="0123", described=None):
    """Writes the cache of a Megatron run over one corpus, and returns its dataset."""
    dataset = megatron.MegatronDataset(prefix, 30, sequence_length=8, split=split)
    (corpus,) = dataset.samples.corpora
    index = {"dataset_path": "/elsewhere/web", "num_samples": 30, "random_seed": 1234, "sequence_length": 8}
    stem = f"{folder}/{name}-GPTDataset-train-"
    index["split"] = split if described is None else described
    Path(f"{stem}description.txt").write_text(json.dumps(index))
    for array in ("document_index", "sample_index", "shuffle_index"):
        np.save(f"{stem}{array}.npy", getattr(corpus, array))
    return dataset


def test_index_files_of_a_run_are_compared_number_by_number(tmp_path, prefix):
    dataset = cached(tmp_path, prefix)
    assert len(megatron.compare_cache(dataset, tmp_path)) == 3
    path = tmp_path / "0123-GPTDataset-train-sample_index.npy"
    stale = np.load(path)
    stale[5, 1] += 1
    np.save(path, stale)
    with pytest.raises(sk.DatasetError, match=r"sample_index.npy: has \[.*\] at 5, but should") as caught:
        megatron.compare_cache(dataset, tmp_path)
    assert "keep it, and compare the corpora and options" in str(caught.value)
    assert "remove" not in str(caught.value)
    np.save(path, stale[:-1])
    with pytest.raises(sk.DatasetError, match="has shape"):
        megatron.compare_cache(dataset, tmp_path)
    # A pickle is never run.
    np.save(path, np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(sk.DatasetError, match="cannot be read as an index"):
        megatron.compare_cache(dataset, tmp_path)
    np.save(path, stale)
    path.write_bytes(path.read_bytes().replace(b"(", b"((", 1))  # numpy raises a TokenError of `tokenize`
    with pytest.raises(sk.DatasetError, match="cannot be read as an index"):
        megatron.compare_cache(dataset, tmp_path)


def test_an_invalid_description_is_an_error_that_names_it(tmp_path, prefix):
    dataset = cached(tmp_path, prefix)
    (tmp_path / "0123-GPTDataset-train-description.txt").write_text("3")
    with pytest.raises(sk.DatasetError, match=r"description\.txt: cannot be read as a description"):
        megatron.compare_cache(dataset, tmp_path)
    (tmp_path / "0123-GPTDataset-train-description.txt").write_text(
        '{"num_samples": 30, "random_seed": 1234, "sequence_length": 8}'
    )
    with pytest.raises(sk.DatasetError, match="holds no index"):
        megatron.compare_cache(dataset, tmp_path)


def test_indexes_of_another_split_are_of_another_run(tmp_path, prefix):
    first = cached(tmp_path, prefix, "5,4,1", "first")
    for split, description in (("9,1", "web, split 9,1"), (None, "web")):
        other = megatron.MegatronDataset(prefix, 30, sequence_length=8, split=split)
        with pytest.raises(sk.DatasetError, match=f"holds no index of train, of {description}"):
            megatron.compare_cache(other, tmp_path)
    second, third = cached(tmp_path, prefix, "9,1", "second"), cached(tmp_path, prefix, None, "third")
    same = megatron.MegatronDataset(prefix, 30, sequence_length=8, split="50,40,10")
    for dataset, name in [(first, "first"), (second, "second"), (third, "third"), (same, "first")]:
        compared = megatron.compare_cache(dataset, tmp_path)
        assert [one.split("-")[0] for one in compared] == [name] * 3
    cached(tmp_path, prefix, "5,4,1", "second", described="9,1")
    with pytest.raises(sk.DatasetError, match=r"second.*_index\.npy: "):
        megatron.compare_cache(second, tmp_path)


def test_an_index_with_wrong_lengths_is_an_error_that_names_it(prefix):
    # Two lengths change, and their sum does not.
    path = Path(prefix + ".idx")
    content = bytearray(path.read_bytes())
    lengths = np.frombuffer(content, dtype="<i4", count=10, offset=34)
    lengths[:3] += np.array([2, 0, -2], dtype="<i4")
    path.write_bytes(content)
    with pytest.raises(sk.DatasetError, match=r"web\.idx"):
        megatron.MegatronDataset(prefix, 30, sequence_length=8).__getitems__(range(30))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"weights": [1.0, 2.0]}, sk.ArgumentValueError, "must be 1 positive numbers"),
        ({"weights": [float("nan")]}, sk.ArgumentRangeError, "must be finite"),
        ({"weights": iter}, sk.ArgumentTypeError, "weights: must be a list of numbers"),
        ({"weights": [1.0], "num_samples": None}, sk.ArgumentValueError, "num_samples"),
        ({"split": "1,0,1", "part": "valid"}, sk.ArgumentValueError, "leaves the part valid empty"),
        ({"split": "996,3,1", "part": "test"}, sk.DatasetError, "Megatron would search forever"),
        ({"mid_level_dataset_surplus": float("nan")}, sk.ArgumentRangeError, "surplus: must be in"),
        ({"random_seed": 2**32}, sk.ArgumentValueError, "as Megatron's"),
        ({"sequence_length": 0}, sk.ArgumentRangeError, "must be positive"),
        ({"num_samples": -1}, sk.ArgumentRangeError, "must not be negative"),
        ({"prefixes": []}, sk.ArgumentTypeError, "prefix"),
        ({"prefixes": ["web"] * 32767}, sk.ArgumentValueError, "must be at most 32766, got 32767"),
        ({"prefixes": "web.bin"}, sk.ArgumentValueError, "must be prefixes of a .bin and an .idx"),
        ({"prefixes": "/nowhere/web"}, sk.DatasetError, "/nowhere/web"),
        ({"drop_last_partial_validation_sequence": 1}, sk.ArgumentTypeError, "must be a bool"),
    ],
)
def test_invalid_arguments_are_refused(prefix, given, error, message):
    with pytest.raises(error, match=message):
        len(
            megatron.MegatronDataset(**{"prefixes": prefix, "num_samples": 30, "sequence_length": 8, **given})
        )


def test_a_corpus_that_is_too_small_for_its_blend_is_refused(tmp_path, documents):
    prefixes = [write_tokens(tmp_path / "web", documents), write_tokens(tmp_path / "short", [[1, 2]])]
    with pytest.raises(sk.DatasetError, match="source 1"):
        len(megatron.MegatronDataset(prefixes, 30, sequence_length=8))
    with pytest.raises(sk.OutOfDatasetError, match="outside of a dataset"):
        megatron.MegatronDataset(prefixes[0], 30, sequence_length=8)[10**6]


SINGLE = {"kind": "megatron_single", "micro_batch_size": 2, "data_parallel_size": 4}
CYCLIC = {**SINGLE, "kind": "megatron_cyclic"}


def config_of(sampler, **sections):
    return sk.load_config({"sampler": sampler, "loader": {"batch_size": 2, "tail": "drop"}, **sections})


@pytest.mark.parametrize("kind", [SINGLE, CYCLIC])
def test_a_state_of_a_config_resumes_in_a_loader_of_python_and_on_other_ranks(kind):
    loader = config_of({**kind, "consumed_samples": 16}).make_loader(range(100), world=sk.World(4, 0))
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    assert state["position"] == 24
    type_ = kind["kind"].removeprefix("megatron_")
    resumed = megatron.loader(
        range(100), 2, 4, consumed_samples=16, dataloader_type=type_, world=sk.World(1, 0), batch_size=8
    )
    resumed.load_state_dict(state)
    others = [
        list(config_of({**kind, "consumed_samples": 24}).make_loader(range(100), world=sk.World(4, rank)))
        for rank in range(4)
    ]
    steps = [sorted(id for batch in step for id in batch.tolist()) for step in zip(*others, strict=True)]
    assert [sorted(batch.tolist()) for batch in resumed] == steps


def test_all_readers_begin_at_consumed_samples():
    sampler = megatron.MegatronPretrainingSampler(2, 1, consumed_samples=6)
    by_config = config_of(
        {**SINGLE, "data_parallel_size": 1, "consumed_samples": 6}, loader={"batch_size": 2}
    )
    world = sk.World(1, 0)
    rest = [[6, 7], [8, 9]]
    assert [batch.tolist() for batch in sk.Loader(range(10), sampler, batch_size=2, world=world)] == rest
    assert [batch.tolist() for batch in by_config.dataloader(range(10), world)] == rest
    assert list(sk.TorchSampler(sampler, range(10), world)) == [6, 7, 8, 9]
    tensors = sk.TensorLoader(torch.arange(10), sampler, batch_size=2, world=world)
    assert [batch.tolist() for batch in tensors] == rest


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        ({**SINGLE, "consumed_samples": 100}, "sampler.consumed_samples: must be below the 100 samples"),
        (
            {**CYCLIC, "consumed_samples": 20},
            "must be a multiple of a step of 8 samples in an epoch of 96",
        ),
        ({**SINGLE, "consumed_samples": -8}, "sampler.consumed_samples: must not be negative, got -8"),
        ({**CYCLIC, "consumed": 8}, "sampler.consumed: is not a key of megatron_cyclic.*consumed_samples"),
        ({**SINGLE, "data_sharding": False}, "sampler.data_sharding: is not a key of megatron_single"),
        (
            {"kind": "distributed", "shuffle": False, "child": {**SINGLE, "consumed_samples": 8}},
            "continues a run, but is below another sampler",
        ),
    ],
)
def test_an_invalid_sampler_of_a_config_is_refused_at_its_key(sampler, message):
    with pytest.raises(sk.ConfigError, match=message):
        config_of(sampler).check_order(range(100))


def test_one_config_file_describes_a_whole_run_with_prefixes_next_to_it(tmp_path):
    prefix = write_tokens(tmp_path / "web", ([document + 1] * (document % 9) + [0] for document in range(60)))
    (tmp_path / "run.yaml").write_text(
        "dataset: {kind: megatron, prefixes: web, num_samples: 48, sequence_length: 4, split: '9,1', "
        "random_seed: 7}\n"
        "sampler: {kind: megatron_single, micro_batch_size: 2, data_parallel_size: 4, consumed_samples: 16}\n"
        "loader: {batch_size: 2, tail: drop}\n"
    )
    given = {"sequence_length": 4, "split": "9,1", "random_seed": 7}
    dataset = megatron.MegatronDataset(prefix, 48, **given)
    for rank in range(4):
        batches = megatron.micro_batches("single", len(dataset), 16, 2, rank, 4)
        with sk.load_config(tmp_path / "run.yaml").make_loader(world=sk.World(4, rank)) as loader:
            assert [batch.tolist() for batch in loader] == [
                dataset.__getitems__(ids).tolist() for ids in batches
            ]
