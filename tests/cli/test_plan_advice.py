"""The advice of plan keeps the samples; its figures for other starts, machines and workers are right."""

import numpy as np
import pytest
import yaml

import samplerkit as sk
from samplerkit.cli.plan import advised_section, in_yaml
from samplerkit.inspect.costs import downloads_of_parts
from samplerkit.inspect.plan import plan
from samplerkit.inspect.quality import mixing
from samplerkit.inspect.view import RunView
from tests.cli.configs import config, in_json

SIZES = [40, 60, 50, 50, 30, 70, 45, 55]
EQUAL = [50] * 8
"""The same number of samples; the figures of files of one size are a single formula."""

MODES = [
    {"shuffle": "false"},
    {"shuffle": "global"},
    {"shuffle": "files"},
    {"shuffle": "infile"},
    {"shuffle": "partial", "partial_size": 75},
]
SEQUENTIAL, RANDOM = {"kind": "sequential"}, {"kind": "random", "seed": 3}
WHOLE = {
    "random": RANDOM,
    "distributed": {"kind": "distributed", "seed": 7},
    "distributed over sequential": {"kind": "distributed", "seed": 7, "child": SEQUENTIAL},
    "three links": {"kind": "distributed", "shuffle": False, "child": {**RANDOM, "child": SEQUENTIAL}},
}
SUBSET, SHUFFLED = (
    {"kind": "subset", "indices": [3, 5, 8, 9]},
    {"kind": "subset_random", "indices": [3, 5, 8, 9]},
)
LIMIT = {**RANDOM, "num_samples": 30}


def dealt(child, **more):
    return {"kind": "distributed", "shuffle": False, "child": child, **more}


CHOOSING = {
    "a subset": (SUBSET, False),
    "a shuffled subset": (SHUFFLED, True),
    "weights": ({"kind": "weighted_random", "weights": [1] * 400}, True),
    "a limit": (LIMIT, True),
    "repeats": ({**RANDOM, "replacement": True}, True),
    "a subset, dealt": (dealt(SUBSET), False),
    "a shuffled subset, dealt": (dealt(SHUFFLED), True),
    "a limit, dealt": (dealt(LIMIT), True),
    "a subset, dealt and shuffled": (dealt(SUBSET, shuffle=True), True),
    "a subset below a shuffle": (dealt({**RANDOM, "child": SUBSET}), True),
}
"""Chains that choose samples, and whether a sampler above shuffles them."""


def config_of(section, sizes=SIZES, **more):
    dataset = {"kind": "layout", "sizes": sizes}
    return {"dataset": dataset, "sampler": section, "loader": {"batch_size": 8}, **more}


def written(folder, section, **more):
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(config_of(section, **more)), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("section", WHOLE.values(), ids=WHOLE.keys())
@pytest.mark.parametrize("mode", MODES, ids=[mode["shuffle"] for mode in MODES])
def test_advice_can_be_loaded_and_reads_the_same_samples_in_that_mode(section, mode):
    config = sk.load_config(config_of(section))
    section, _ = advised_section(config, sk.Layout(SIZES), mode)
    made = sk.load_config(config_of(yaml.safe_load(in_yaml(section))))
    layout = made.dataset
    assert sorted(made.sampler.undealt_order(layout)) == sorted(config.sampler.undealt_order(layout))
    assert made.sampler.get_child() is None
    assert made.sampler.get_shuffle_mode().value == mode["shuffle"]
    is_dealt, was_dealt = (one.sampler.chain.deal is not None for one in (made, config))
    assert is_dealt == was_dealt or mode["shuffle"] == "false"


@pytest.mark.parametrize(("section", "is_shuffled"), CHOOSING.values(), ids=CHOOSING.keys())
def test_no_mode_is_advised_in_place_of_a_choice_but_a_random_sampler_if_none_shuffles(
    section, is_shuffled, command, tmp_path
):
    config = sk.load_config(config_of(section))
    assert all(advised_section(config, sk.Layout(SIZES), mode)[0] is None for mode in MODES)
    advice = in_json(command, "plan", written(tmp_path, section, sizes=EQUAL))[1]["recommendation"]
    assert (advice["chosen"], advice["sampler"]) == (None, None)
    assert "chooses the samples, and a shuffle mode in its place would read others" in advice["reason"]
    assert advice["reason"].endswith("already fully shuffled") == is_shuffled
    assert ("put a random sampler over it" in advice["reason"]) != is_shuffled


def test_min_quality_advises_no_mode_in_place_of_a_choice():
    weighted = {"kind": "subset", "indices": list(range(400))}
    with pytest.raises(sk.ConfigError, match="put a RandomSampler over SubsetSampler, which chooses"):
        sk.load_config(config_of(weighted, min_quality=0.9))


def test_the_chain_of_the_readme_has_a_mode_and_advice_that_can_be_pasted(command, printed, tmp_path):
    path = written(tmp_path, WHOLE["distributed over sequential"], sizes=EQUAL)
    output = printed("plan", path, "--world", 2)
    assert "mode     GLOBAL: set by the sampler" in output
    section = in_json(command, "plan", path, "--world", 2)[1]["recommendation"]["sampler"]
    assert f"write sampler: {in_yaml(section)}" in " ".join(output.split())
    assert command("validate", written(tmp_path, section))[0] == 0
    weights = command("plan", written(tmp_path, CHOOSING["weights"][0], sizes=EQUAL))[1]
    assert "mode     none: the sampler has no shuffle mode" in weights
    assert "cheapest" not in weights


class Remote(sk.Layout):
    """Remote shards, as far as plan requests them."""

    is_remote, fetch, max_cache_bytes = True, "shards", None

    @property
    def layout(self):
        return sk.Layout(self.sizes)

    def shard_bytes(self):
        return np.full(self.num_files, 1 << 20)


def remote(ranks, workers=0, **options):
    sampler = sk.DistributedSampler(seed=7, **options)
    return sk.Loader(Remote([64] * 32), sampler, batch_size=4, num_workers=workers, world=sk.World(ranks, 0))


@pytest.mark.parametrize(("shuffle", "per_machine"), [("files", 1), ("files", 3), (True, 2), (True, 8)])
def test_each_machine_fetches_what_its_ranks_read(shuffle, per_machine, monkeypatch):
    loader = remote(8, shuffle=shuffle)
    view = RunView.of(loader)
    files = 0
    for first in range(0, 8, per_machine):
        readings = [view.reading(0, rank) for rank in range(first, min(8, first + per_machine))]
        ids = np.concatenate([ids for reading in readings for _, ids in reading.batches()])
        files += np.unique(view.layout.file_of(ids)).size
    transfers = plan(loader, ranks_per_machine=per_machine).transfers
    assert (transfers.whole.requests, transfers.whole.bytes) == (files, files << 20)
    monkeypatch.setattr("samplerkit.inspect.costs.COUNTED_REQUESTS", 256)
    estimated = downloads_of_parts(view, 0, per_machine)[""]
    assert not estimated.is_counted
    assert estimated.whole.requests == pytest.approx(files, rel=0.35)


def test_a_run_that_resumes_on_other_ranks_is_planned_with_the_lanes_of_its_start(command, tmp_path):
    path = written(tmp_path, {"kind": "distributed", "shuffle": "files", "seed": 7}, sizes=EQUAL)
    plain = in_json(command, "plan", path, "--world", 3)[1]
    resumed = in_json(command, "plan", path, "--world", 3, "--first-world", 4)[1]
    first = in_json(command, "plan", path, "--world", 4)[1]
    assert (plain["lanes"], resumed["lanes"], resumed["num_ranks"]) == (3, 4, 3)
    assert resumed["fingerprint"] == first["fingerprint"] != plain["fingerprint"]


def test_a_run_that_resumes_on_other_ranks_mixes_by_the_lanes_of_its_start():
    sampler, layout = sk.RandomSampler(shuffle="files", seed=7), sk.Layout(EQUAL)
    first, resumed = (sk.Loader(layout, sampler, batch_size=4, world=sk.World(ranks)) for ranks in (4, 1))
    resumed.load_state_dict(first.state_dict())
    assert plan(resumed).mixing == mixing(sampler, layout, 4, world=sk.World(4))
    assert plan(resumed).mixing != mixing(sampler, layout, 4, world=sk.World(1))


def test_remote_files_are_advised_blocks_of_four_files_as_the_page_says(command, tmp_path):
    folder = tmp_path / "remote"
    folder.mkdir()
    dataset = {"kind": "tar", "urls": "memory://none/{00..31}.tar"}
    section = {"kind": "distributed", "shuffle": "files"}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({"dataset": dataset, "sampler": section, "loader": {"batch_size": 8}}))
    refused = in_json(command, "plan", path, "--world", 2)[1]
    assert "samplerkit index" in refused["hint"]
    assert "--samples-per-file" in refused["hint"]
    guessed = in_json(command, "plan", path, "--world", 2, "--samples-per-file", 100)[1]
    assert (guessed["num_samples"], guessed["num_files"]) == (3200, 32)
    chosen = guessed["recommendation"]["chosen"]
    assert (chosen["shuffle"], chosen["partial_size"]) == ("partial", 400)
    local = written(tmp_path, section, sizes=EQUAL)
    assert in_json(command, "plan", local, "--world", 2)[1]["recommendation"]["chosen"]["shuffle"] == "files"


def test_three_samples_are_planned_without_a_mixing_and_advice(command, tmp_path):
    path = config(tmp_path, dataset={"kind": "size", "size": 3})
    planned = in_json(command, "plan", path)[1]
    assert (planned["num_samples"], planned["mixing"], planned["recommendation"]) == (3, None, None)
