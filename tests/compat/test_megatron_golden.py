"""What Megatron-LM reads, ours reads: its recorded builds and micro-batches, all of them.

`tests/data/megatron_golden.json.gz` holds 300 builds and 100 settings of the samplers of megatron-core
0.16.1. A build names the tokens of all sequences of its corpora; of each part it has the number of samples,
and a digest of the JSON of all of them, each a list of spans.
"""

import gzip
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.compat import megatron
from samplerkit.compat.megatron import blend
from samplerkit.compat.megatron.samplers import MicroBatches
from samplerkit.compat.megatron.samples import BlendedSamples, Cut, ShuffledCorpus

GOLDEN = Path(__file__).parents[1] / "data" / "megatron_golden.json.gz"
PARTS = ("train", "valid", "test")


@cache
def recorded(kind: str) -> list[dict[str, Any]]:
    """Reads the `cases` or the `samplers`."""
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as file:
        cases: list[dict[str, Any]] = json.load(file)[kind]
    return cases


def built(case: dict[str, Any], part: str) -> BlendedSamples:
    """Builds a part of a recorded case."""
    cut = Cut(case["seq_len"], case["seed"], int(case["extra"]), case["keep_partial"] and part == "valid")
    return BlendedSamples(
        [np.array(lengths, dtype=np.int32) for lengths in case["lengths"]],
        case["weights"],
        case["sizes"][PARTS.index(part)],
        cut,
        split=case["split"],
        part=part,
        surplus=case["surplus"],
    )


def spans(samples: BlendedSamples) -> list[list[list[int]]]:
    """Returns for each sample its spans of document, offset and length; of a blend, also the corpus."""
    columns = samples.spans(np.arange(len(samples)))
    rows = np.stack(columns[2 if samples.dataset_index is None else 1 :], axis=1).tolist()
    by_sample: list[list[list[int]]] = [[] for _ in range(len(samples))]
    for number, row in zip(columns.rows.tolist(), rows, strict=True):
        by_sample[number].append(row)
    return by_sample


def digest(by_sample: list[list[list[int]]]) -> str:
    """Returns the digest of spans, as in a recording."""
    return hashlib.sha256(json.dumps(by_sample, separators=(",", ":")).encode()).hexdigest()


def test_every_recorded_build_is_replayed_token_for_token():
    compared = absent = 0
    for number, case in enumerate(recorded("cases")):
        for part in PARTS:
            output = case["outputs"][part]
            if output is None:
                with pytest.raises(sk.ArgumentValueError, match=f"leaves the part {part} empty"):
                    built(case, part)
                absent += 1
                continue
            samples = spans(built(case, part))
            assert (len(samples), digest(samples)) == (output["samples"], output["sha256"]), (number, part)
            compared += 1
    assert (compared, absent) == (576, 324)


def test_every_recorded_micro_batch_is_replayed():
    compared = 0
    for case in recorded("samplers"):
        for rank, batches in enumerate(case["batches"]):
            replayed = megatron.micro_batches(
                case["kind"],
                case["total"],
                case["consumed"],
                case["micro_batch"],
                rank,
                case["ranks"],
                drop_last=case["drop_last"],
            )
            assert list(replayed) == batches, case
            compared += 1
    assert compared == 360


def loader_of(case, **options):
    return megatron.loader(
        range(case["total"]),
        case["micro_batch"],
        case["ranks"],
        consumed_samples=case["consumed"],
        dataloader_type=case["kind"].split()[0],
        data_sharding=case["kind"] == "cyclic sharded",
        **options,
    )


def config_of(case):
    """A recorded setting of a sampler as a config."""
    sampler = {"kind": "megatron_single"}
    if case["kind"] != "single":
        sampler = {"kind": "megatron_cyclic", "data_sharding": case["kind"] == "cyclic sharded"}
    sampler |= {"micro_batch_size": case["micro_batch"], "data_parallel_size": case["ranks"]}
    loader = {"batch_size": case["micro_batch"], "tail": "drop"}
    return sk.load_config({"sampler": {**sampler, "consumed_samples": case["consumed"]}, "loader": loader})


def test_a_loader_and_a_config_give_each_rank_the_recorded_micro_batches():
    # But for the quirks: batches that not every rank has, and short ones.
    compared = left_out = 0
    for case in recorded("samplers"):
        config = config_of(case)
        assert sk.load_config(config.to_dict()) == config
        steps = min(sum(len(batch) == case["micro_batch"] for batch in rank) for rank in case["batches"])
        for rank, batches in enumerate(case["batches"]):
            world = sk.World(case["ranks"], rank)
            for loader in (loader_of(case, world=world), config.make_loader(range(case["total"]), world)):
                assert [batch.tolist() for batch in loader] == batches[:steps], case
            compared += steps
            left_out += len(batches) - steps
    assert compared > 400
    assert left_out < 60


def lagging(weights, length, sizes=None):
    """The rule of a blend as a plain loop."""
    counts, sources = [0] * len(weights), []
    for position in range(length):
        lags = [
            float("-inf") if sizes and count == size else weight * max(position, 1) - count
            for weight, count, size in zip(weights, counts, sizes or [None] * len(weights), strict=True)
        ]
        sources.append(lags.index(max(lags)))
        counts[sources[-1]] += 1
    return sources


@pytest.mark.parametrize("seed", range(8))
def test_parallel_stretches_equal_the_sequential_rule(seed, monkeypatch):
    monkeypatch.setattr(blend, "_SHORTEST", 80)
    random = np.random.default_rng(seed)
    sources = int(random.integers(2, 14))
    weights = np.exp(random.normal(size=sources) * random.choice([0.3, 2, 5]))
    if seed % 3 == 0:
        sizes = np.maximum(1, (weights / weights.sum() * 4000).astype(np.int64))
        length, weights = int(sizes.sum()), sizes / np.sum(sizes)
        expected = lagging(weights.tolist(), length, sizes.tolist())
        assert blend.blended(weights, length, sizes).tolist() == expected
    else:
        weights /= np.sum(weights)
        length = int(random.integers(1, 6000))
        assert blend.blended(weights, length).tolist() == lagging(weights.tolist(), length)


def test_stretches_with_wrong_guesses_are_computed_again(monkeypatch):
    monkeypatch.setattr(blend, "_SHORTEST", 80)
    # Of many sources with small weights, some stretches begin with wrong counts.
    weights = np.random.default_rng(0).random(100) ** 6 + 1e-9
    weights /= np.sum(weights)
    assert blend.blended(weights, 24_000).tolist() == lagging(weights.tolist(), 24_000)


def test_a_part_without_tokens_is_refused():
    empty = np.zeros(4, dtype=np.int32)
    with pytest.raises(sk.DatasetError, match=r"gives this part no token.*sequences 2 to 4 of 4"):
        ShuffledCorpus(empty, (2, 4), 10, Cut(8, 1234))
    assert len(ShuffledCorpus(empty, (2, 4), None, Cut(8, 1234))) == 0


def test_orders_of_micro_batches_invert():
    for order in (MicroBatches(50, 3, 4, 5), MicroBatches(7, 2, 8, 0)):
        which, places = order.positions_of(np.arange(-2, len(order) + 2))
        assert sorted(which - 2) == list(range(len(order)))
        assert (order[places] == which - 2).all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"consumed_samples": 2.5}, sk.ArgumentTypeError, "must be an integer"),
        (
            {"micro_batch_size": 60, "dataloader_type": "cyclic"},
            sk.ArgumentRangeError,
            "must be at least one step of 120",
        ),
        ({"dataloader_type": "external"}, sk.ArgumentValueError, "dataloader_type"),
    ],
)
def test_a_position_that_no_run_has_is_refused(arguments, error, message):
    given = {"micro_batch_size": 4, "data_parallel_size": 2, **arguments}
    with pytest.raises(error, match=message):
        megatron.loader(range(100), **given)


def test_a_child_below_a_replayed_sampler_is_refused():
    sampler = megatron.MegatronPretrainingRandomSampler(2, 2)
    sampler.add_child(sk.RandomSampler())
    with pytest.raises(sk.CompositionError, match="leave the child out"):
        sampler.order(8)
