"""The benchmarks: their counting, limits and pages; the counts of docs/scale.md on a few ranks; floors."""

import json
import math
import sys

import numpy as np
import pytest

from samplerkit.loading.agreement import Agreement
from tests.benchmarks.floor_rows import of_starts
from tests.benchmarks.peers import measuring, samplerkit, torchdata
from tests.benchmarks.peers.__main__ import PAGES, RESULTS
from tests.benchmarks.peers.cases import BATCH, RESIZES, SHARD, SHARDS
from tests.benchmarks.peers.collect import TEXTS
from tests.benchmarks.peers.environments import PEERS, REQUIREMENTS, load
from tests.benchmarks.peers.limits import ENDED, cells_of
from tests.benchmarks.peers.measuring import lost_and_repeated
from tests.benchmarks.peers.page import BLOCKS, NAMES, PART, filled
from tests.benchmarks.scale import (
    RECIPES,
    SECONDS,
    SITUATIONS,
    expected_requests,
    layout_of,
    memory,
    object_requests,
    object_store,
    store_requests,
    three,
)


@pytest.fixture
def cells(capsys):
    """The cells that a measurement in this process prints."""

    def printed(measure, *arguments):
        measure(*arguments)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return printed


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        ([0, 1, 2, 3], (0, 0)),
        # The same set twice over would hide a repeat in a comparison of sets, and a loss in one of counts.
        ([0, 1, 2, 2], (1, 1)),
    ],
)
def test_samples_that_never_arrive_are_lost_and_later_arrivals_are_repeated(received, expected):
    assert lost_and_repeated(4, received) == expected


def test_rows_come_end_to_end(cells):
    rows = cells(measuring.end_to_end, samplerkit.Samplerkit(), "2000", "2")
    assert len({cell["variant"] for cell in rows}) == 2
    assert all(cell["per_second"] > 0 for cell in rows)


def test_samplerkit_loses_nothing_on_other_ranks_and_repeats_only_pads(cells):
    measured = cells(measuring.ranks, samplerkit.Samplerkit())
    counts = {(cell["rule"], cell["case"]): (cell["lost"], cell["repeated"]) for cell in measured}
    assert len(counts) == 2 * len(RESIZES)
    not_exact = {key: pair for key, pair in counts.items() if pair != (0, 0)}
    # 424 samples are left for 3 ranks: two are missing to 3 * 142.
    assert not_exact == {("`Loader`", "4 to 3, uneven tail"): (0, 2)}


def test_the_state_of_torchdata_with_its_counters_set_is_that_of_a_loader_that_read_so_far():
    loader = torchdata.loader_of(10_000, SHARDS, SHARD, BATCH)
    for _, _ in zip(range(3), loader, strict=False):
        pass
    assert torchdata.state_after(10_000, 3) == loader.state_dict()


SLEEPS = "import time; time.sleep(60)"
GROWS = "import time; held = bytearray(300 << 20); time.sleep(60)"
FAILS = 'print("{\\"cell\\": 1}", flush=True); raise ValueError("by design")'


@pytest.mark.parametrize(
    ("code", "seconds", "gib", "expected"),
    [
        (SLEEPS, 0.5, 8, [{ENDED: "over 0.5 s"}]),
        (GROWS, 30, 0.1, [{ENDED: "over 0.1 GiB"}]),
        (FAILS, 30, 8, [{"cell": 1}, {ENDED: "failed: ValueError: by design"}]),
        ("pass", 30, 8, []),
    ],
    ids=["slow", "large", "failing", "good"],
)
def test_a_measurement_is_ended_at_its_limits_and_reports_it(code, seconds, gib, expected):
    assert list(cells_of([sys.executable, "-c", code], seconds, gib)) == expected


def test_environments_that_were_not_made_have_a_reason(tmp_path):
    environments = load(tmp_path)
    assert set(environments) == set(REQUIREMENTS) == set(PEERS.values())
    assert all(environment.reason for environment in environments.values())


def test_every_generated_part_of_the_page_is_known():
    parts = [name for page in PAGES for _, name, _ in PART.findall(page.read_text(encoding="utf-8"))]
    assert sorted(parts) == sorted([*BLOCKS, *(f"text {name}" for name in TEXTS)])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_has_the_figures_of_the_results(path):
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = path.read_text(encoding="utf-8")
    assert filled(page, results) == page
    assert set(results["peers"]) == set(NAMES)
    # The control: another figure is another page.
    for cell in results["peers"]["samplerkit"]["curve"]:
        cell["seconds"] = 12345.0
    assert filled(page, results) != page


def test_a_row_reads_with_and_without_samplerkit():
    for row in of_starts():
        assert [next(make()) for make in (row.ours, row.floor)] == [1, 1]


FEW, MANY, FILES = 8, 10_000, 1000


def grows_slowly(few, many):
    """Whether figures of one rank grow with the number of ranks no faster than its logarithm."""
    return (np.asarray(many) <= np.asarray(few) * math.log(MANY) / math.log(FEW)).all()


def store_traffic(ranks, late, dead):
    outcomes = store_requests(ranks, late, dead)
    measured = [outcomes[rank] for rank in three(ranks)]
    return [max(rank.requests for rank in measured), max(rank.store.bytes for rank in measured)]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_store_requests_of_a_rank_are_as_computed_and_do_not_grow(situation):
    late, dead = SITUATIONS[situation]
    assert grows_slowly(*(store_traffic(ranks, late, dead) for ranks in (FEW, MANY)))
    for ranks in (FEW, MANY):
        expected = expected_requests(ranks, SECONDS if dead else late)
        outcomes = store_requests(ranks, late, dead)
        assert {outcomes[rank].requests for rank in three(ranks)[:2]} <= {*expected}


def test_a_rank_that_reads_the_members_of_its_group_is_noticed(monkeypatch):
    right = Agreement._complete
    monkeypatch.setattr(Agreement, "_complete", lambda self, own, _: right(self, own, False))
    assert not grows_slowly(*(store_traffic(ranks, 3.0, 0) for ranks in (FEW, MANY)))


def test_the_object_store_requests_of_a_rank_do_not_grow():
    with object_store(FILES) as server:
        traffic = {
            ranks: [object_requests(server, FILES, ranks, rank) for rank in three(ranks)]
            for ranks in (FEW, MANY)
        }
    for few, many in zip(traffic[FEW], traffic[MANY], strict=True):
        assert grows_slowly([sum(few.requests), sum(few.bytes)], [sum(many.requests), sum(many.bytes)])


@pytest.mark.parametrize("name", RECIPES)
def test_the_memory_of_a_rank_grows_only_by_a_table_of_lanes(name):
    layout = layout_of(FILES)
    memory(layout, name, FEW, 0)  # what is made once in a process
    few, many = (memory(layout, name, ranks, ranks - 1) for ranks in (FEW, MANY))
    lanes = {"GLOBAL": 0, "FILES": 0, "PARTIAL": 40}.get(name, 600)
    assert grows_slowly(few, np.array(many) - lanes * MANY / 2**20)
