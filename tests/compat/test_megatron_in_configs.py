"""A run of Megatron-LM that goes on by a config: both samplers, and how many samples it has consumed."""

from __future__ import annotations

import pytest
import torch

import samplerkit as sk
from samplerkit.compat import megatron
from samplerkit.config.config import Config
from tests.compat.megatron_cases import recorded

SINGLE = {"kind": "megatron_single", "micro_batch_size": 2, "data_parallel_size": 4}
CYCLIC = {**SINGLE, "kind": "megatron_cyclic"}


def config_of(sampler, **sections) -> Config:
    return sk.load_config({"sampler": sampler, "loader": {"batch_size": 2, "tail": "drop"}, **sections})


def told(case):
    """A recorded setting of a sampler as a config."""
    named = {"micro_batch_size": case["micro_batch"], "data_parallel_size": case["ranks"]}
    named["consumed_samples"] = case["consumed"]
    if case["kind"] == "single":
        return {"kind": "megatron_single", **named}
    return {"kind": "megatron_cyclic", **named, "data_sharding": case["kind"] == "cyclic sharded"}


def test_a_config_gives_each_rank_the_recorded_micro_batches():
    compared = 0
    for case in recorded("samplers"):
        config = config_of(told(case), loader={"batch_size": case["micro_batch"], "tail": "drop"})
        assert sk.load_config(config.to_dict()) == config
        steps = min(sum(len(batch) == case["micro_batch"] for batch in rank) for rank in case["batches"])
        for rank, batches in enumerate(case["batches"]):
            loader = config.make_loader(range(case["total"]), world=sk.World(case["ranks"], rank))
            assert [batch.tolist() for batch in loader] == batches[:steps], case
            compared += steps
    assert compared > 400


@pytest.mark.parametrize("kind", [SINGLE, CYCLIC])
def test_a_state_of_such_a_run_resumes_by_the_loader_of_python_and_on_other_ranks(kind):
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


def test_an_epoch_behind_the_first_is_entered_where_the_run_stands():
    loader = config_of({**CYCLIC, "consumed_samples": 2 * 96 + 16}).make_loader(
        range(100), world=sk.World(4, 0)
    )
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (2, 16)
    assert len(list(loader)) == 10
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (3, 0)


def test_all_readers_begin_there():
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
        ({**CYCLIC, "consumed_samples": 20}, "sampler.consumed_samples: must be a multiple of a step of 8"),
        ({**SINGLE, "consumed_samples": -8}, "sampler.consumed_samples: must not be negative, got -8"),
        ({**CYCLIC, "consumed_samples": 1.5}, "sampler.consumed_samples: .*integer"),
        ({**CYCLIC, "consumed": 8}, "sampler.consumed: is no key of megatron_cyclic.*consumed_samples"),
        ({**SINGLE, "data_sharding": False}, "sampler.data_sharding: is no key of megatron_single"),
        ({**SINGLE, "micro_batch_size": 0}, "sampler.micro_batch_size: must be positive"),
        (
            {"kind": "distributed", "shuffle": False, "child": {**SINGLE, "consumed_samples": 8}},
            "continues a run, and is below another one",
        ),
    ],
)
def test_what_no_run_says_is_refused_at_its_key(sampler, message):
    with pytest.raises(sk.ConfigError, match=message):
        config_of(sampler).check_order(range(100))


def test_a_loader_refuses_where_no_run_stands_before_it_reads():
    made = [
        (sk.ArgumentRangeError, {**SINGLE, "consumed_samples": 100}, {}),
        (sk.CompositionError, {"kind": "ledger", "child": {**SINGLE, "consumed_samples": 8}}, {}),
        (
            sk.NotSupportedError,
            {**SINGLE, "consumed_samples": 8},
            {"batches": sk.TokenBatches(64, lengths=[1] * 100)},
        ),
    ]
    for error, sampler, options in made:
        config = sk.load_config({"sampler": sampler})
        with pytest.raises(error):
            config.make_loader(range(100), world=sk.World(1, 0), **options)


def test_a_whole_run_stands_in_one_file(tmp_path):
    with sk.TokenWriter(tmp_path / "web", "uint16", progress=False) as writer:
        for document in range(60):
            writer.write([document + 1] * (document % 9) + [0])
    (tmp_path / "run.yaml").write_text(
        "dataset: {kind: megatron, prefixes: web, num_samples: 48, sequence_length: 4, split: '9,1'}\n"
        "sampler: {kind: megatron_single, micro_batch_size: 2, data_parallel_size: 4, consumed_samples: 16}\n"
        "loader: {batch_size: 2, tail: drop}\n"
    )
    dataset = megatron.MegatronDataset(str(tmp_path / "web"), 48, sequence_length=4, split="9,1")
    for rank in range(4):
        theirs = megatron.micro_batches("single", len(dataset), 16, 2, rank, 4)
        with sk.load_config(tmp_path / "run.yaml").make_loader(world=sk.World(4, rank)) as loader:
            assert [batch.tolist() for batch in loader] == [
                dataset.__getitems__(ids).tolist() for ids in theirs
            ]
