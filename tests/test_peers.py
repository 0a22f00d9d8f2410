"""The benchmark against the peers: its counting, its limits, its page, and the cells of installed peers."""

from __future__ import annotations

import json
import sys

import pytest

from tests.benchmarks.peers import measuring, samplerkit, torchdata
from tests.benchmarks.peers.cases import BATCH, RESIZES, SHARD, SHARDS
from tests.benchmarks.peers.collect import TEXTS
from tests.benchmarks.peers.counting import lost_and_repeated
from tests.benchmarks.peers.environments import PEERS, REQUIREMENTS, load
from tests.benchmarks.peers.limits import ENDED, ROOT, cells_of
from tests.benchmarks.peers.page import BLOCKS, NAMES, PART, filled

PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")
RESULTS = ROOT / "docs" / "performance.json"


@pytest.fixture
def cells(capsys):
    """What a measurement in this process prints."""

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
def test_a_sample_that_never_came_is_lost_and_each_further_arrival_is_a_repeat(received, expected):
    assert lost_and_repeated(4, received) == expected


def test_rows_are_measured_end_to_end(cells):
    rows = cells(measuring.end_to_end, samplerkit.Samplerkit(), "2000", "2")
    assert len({cell["variant"] for cell in rows}) == 2
    assert all(cell["per_second"] > 0 for cell in rows)


def test_samplerkit_loses_nothing_on_other_ranks_and_repeats_only_the_pads(cells):
    measured = cells(measuring.ranks, samplerkit.Samplerkit())
    counts_by_case = {(cell["rule"], cell["case"]): (cell["lost"], cell["repeated"]) for cell in measured}
    assert len(counts_by_case) == 2 * len(RESIZES)
    not_exact = {key: counts for key, counts in counts_by_case.items() if counts != (0, 0)}
    # 424 samples are left for 3 ranks: two are missing to 3 * 142.
    assert not_exact == {("`Loader`", "4 to 3, uneven tail"): (0, 2)}


def test_the_state_of_torchdata_with_set_counters_is_that_of_a_loader_that_read_so_far():
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
def test_a_measurement_is_ended_at_its_limits_with_a_reason(code, seconds, gib, expected):
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
