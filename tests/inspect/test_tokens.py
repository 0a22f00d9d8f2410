"""What a run reads, in tokens and documents, and of each source of a mixture: in a plan, a step and a log."""

import json
import tracemalloc
from dataclasses import asdict

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.pictures.picture import draw
from samplerkit.inspect.pictures.plot_data import MAX_POINTS, PlotData
from samplerkit.inspect.plan import plan
from samplerkit.inspect.time_machine import at, when_document
from samplerkit.inspect.view import RunView
from tests.corpora import write_tokens
from tests.inspect.setups import mixed
from tests.loading.rings import Rings
from tests.numbers import Texts

DOCUMENTS = [30, 50, 7, 13, 60, 40]
"""Tokens of each, one after another: 200."""


@pytest.fixture
def prefix(tmp_path):
    write_tokens(tmp_path / "corpus", np.split(np.arange(200), np.cumsum(DOCUMENTS)[:-1]))
    return tmp_path / "corpus"


@pytest.fixture
def two_corpora(prefix):
    return {"one": prefix, "two": write_tokens(prefix.with_name("other"), [range(27), range(36)])}


def loader(data, sampler=None, ranks=2, batch_size=2):
    sampler = sk.BlockSampler(2, seed=3) if sampler is None else sampler
    return sk.Loader(data, sampler, batch_size=batch_size, world=sk.World(ranks, 0))


def test_a_plan_counts_tokens_the_documents_that_are_cut_and_the_steps_between_changes(prefix):
    data = sk.TokenDataset(prefix, 5, block_len=20, documents="idx", phase=True, seed=1)
    figures = plan(loader(data)).tokens
    assert (figures.seq_len, figures.block_len) == (5, 20)
    assert (figures.tokens_a_step, figures.tokens_an_epoch) == (20, 200)
    assert figures.steps_to_a_change == 2
    begins = [data.spans(id, epoch=0)[0][2] for id in range(40)]
    assert (figures.cut, figures.is_exact) == (sum(first > 0 for first in begins) / 40, True)
    assert plan(loader(data, ranks=3)).tokens.steps_to_a_change == 4
    assert plan(loader(data, sk.BlockSampler(7), ranks=3)).tokens.steps_to_a_change is None
    assert plan(loader(data, sk.RandomSampler())).tokens.steps_to_a_change == 0
    assert plan(loader(Rings([48], 4, 12))).tokens.cut is None
    planned = plan(loader(range(100), sk.RandomSampler()))
    assert planned.tokens is None
    assert planned.to_dict()["tokens"] is None


@pytest.mark.parametrize("epoch", [0, 4])
def test_the_documents_that_a_step_reports_are_those_that_are_read(prefix, epoch):
    data = sk.TokenDataset(prefix, 5, block_len=20, documents="idx", seed=1)
    run = loader(data)
    starts = np.cumsum([0, *DOCUMENTS])
    read = at(run, epoch, step=3, rank=1)
    rows = data.__getitems__(read.ids, np.full(read.ids.size, epoch))
    for row, spans in zip(rows.tolist(), read.spans, strict=True):
        expected = [starts[document] + first + np.arange(count) for _, document, first, count in spans]
        assert np.concatenate(expected).tolist() == row
    assert json.loads(json.dumps(read.to_dict()))["spans"] == [[*map(list, spans)] for spans in read.spans]
    assert at(loader(range(100), sk.RandomSampler()), 0, 0).spans is None


def test_the_commands_show_tokens_and_documents(prefix, printed):
    config = prefix.with_name("run.yaml")
    config.write_text(
        "dataset: {kind: tokens, files: corpus, seq_len: 5, block_len: 20, documents: idx, seed: 1}\n"
        "sampler: {kind: block, pool: 2, seed: 3}\n"
        "loader: {batch_size: 2}\n"
    )
    planned = printed("plan", config, "--world", 2)
    assert "20 a step, 200 an epoch, in windows of 5 and blocks of 20" in planned
    assert "of the windows begin within one" in planned
    assert "may change every 2 steps" in planned
    output = printed("at", config, "--epoch", 0, "--step", 1, "--world", 2)
    read = at(sk.load_config(config), 0, 1, world=2)
    count = len({span[:2] for spans in read.spans for span in spans})
    assert f"tokens {read.tokens} of {count} documents" in " ".join(output.split())
    assert read.tokens == read.to_dict()["tokens"] == 10
    query = ("when", config, "--document", 4, "--world", 2)
    parts = when_document(sk.load_config(config), 4, range(2), world=2)
    lines = [line.split() for line in printed(*query, "--epochs", "0:2").splitlines() if line]
    listed = [line[-1] for line in lines if line[0].isdecimal()]
    assert listed == [str(part.tokens) for part in (*parts[0], *parts[1])]
    assert json.loads(printed(*query, "--json"))["epochs"] == [[asdict(part) for part in parts[0]]]


def all_parts(run, epoch, ranks):
    """The parts of each document that all ranks read in an epoch, from what is read in each step."""
    parts = {}
    for rank in range(ranks):
        for step in range(at(run, epoch, 0, rank).num_steps):
            read = at(run, epoch, step, rank)
            for place, spans in enumerate(read.spans):
                for file, document, first, tokens in spans:
                    part = (rank, step, place, int(read.ids[place]), first, tokens, bool(read.pads[place]))
                    parts.setdefault((file, document), []).append(part)
    return {document: sorted(times) for document, times in parts.items()}


@pytest.mark.parametrize("case", ["blocks", "pads", "no phase", "split", "mixture in passes"])
def test_when_a_document_is_read_agrees_with_all_steps(prefix, two_corpora, case):
    options = {"documents": "idx", "seed": 1}
    sampler, files, numbers = None, prefix, range(len(DOCUMENTS))
    if case == "pads":
        sampler = sk.RandomSampler(seed=2)
    elif case == "no phase":
        options, sampler = {"phase": False}, sk.SequentialSampler()
    elif case == "split":
        options, sampler = {**options, "split": "1,1,0", "part": "valid"}, sk.RandomSampler(seed=2)
        numbers = range(3, 6)
    elif case == "mixture in passes":
        files = two_corpora
        sampler = sk.MixtureSampler({"one": None, "two": None}, weights={"one": 1, "two": 2}, seed=4)
    data = sk.TokenDataset(files, 5, **options)
    run = loader(data, sampler, ranks=3, batch_size=4)
    for epoch in (0, 3):
        read = all_parts(run, epoch, 3)
        reported = {
            (file, document): sorted(
                (time.rank, time.step, time.place, part.window, part.first, part.tokens, time.is_pad)
                for part in when_document(run, document, epoch, file=file)[0]
                for time in (part.read,)
            )
            for file, document in {*read, *((0, number) for number in numbers)}
        }
        assert {document: parts for document, parts in reported.items() if parts} == read


def test_the_file_of_a_document_is_given_by_number_or_name(prefix):
    data = sk.TokenDataset({f"c{number}": [prefix] for number in range(9)}, 5, documents="idx")
    assert data.layout.names == tuple(f"c{number}/corpus" for number in range(9))
    for number, name in enumerate(data.layout.names):
        assert data.windows_of(4, file=name).tolist() == data.windows_of(4, file=number).tolist()
        run = loader(data)
        assert when_document(run, 4, 0, file=name) == when_document(run, 4, 0, file=number)
    with pytest.raises(
        sk.ArgumentValueError,
        match=r"^file: is not a file of the layout, got 'code'; known: c0/corpus, .* c7/corpus, \.\.\.$",
    ):
        data.windows_of(4, file="code")
    with pytest.raises(sk.ArgumentTypeError, match=r"^file: must be an integer, got 1\.5"):
        data.windows_of(4, file=1.5)


@pytest.mark.parametrize("batch_size", [2, 7])
def test_the_marks_of_documents_agree_with_each_step(two_corpora, batch_size):
    data = sk.TokenDataset(two_corpora, 5, documents="idx", seed=1)
    names = {"one": None, "two": None}
    run = loader(data, sk.MixtureSampler(names, weights={"one": 1, "two": 2}, seed=4), 3, batch_size)
    marks, are_known = PlotData("run", RunView.of(run), 1).documents_read
    expected = [
        (step, rank, file, document)
        for rank in range(3)
        for step in range(at(run, 1, 0, rank).num_steps)
        for spans in at(run, 1, step, rank).spans
        for file, document, _, _ in spans
    ]
    assert are_known
    assert sorted(map(tuple, marks.T.tolist())) == sorted(expected)
    assert {file for _, _, file, _ in expected} == {0, 1}


def test_marks_of_a_file_of_2_to_the_36_tokens_without_an_index_need_little_memory(tmp_path):
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(2**36)
    data = sk.TokenDataset(tmp_path / "large.bin", 1024, dtype="u1")
    view = RunView.of(loader(data, sk.RandomSampler(seed=2), ranks=40, batch_size=8))
    tracemalloc.start()
    (steps, ranks, _, places), are_known = PlotData("run", view).documents_read
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not are_known
    assert 2000 < steps.size <= MAX_POINTS
    assert places.min() < 2**30
    assert places.max() > 2**36 - 2**30
    assert {0, 39} < {*ranks.tolist()}
    assert peak < 16 << 20


def test_documents_of_batches_are_counted_for_pictures(prefix, tmp_path):
    run = loader(sk.TokenDataset(prefix, 5, documents="idx", seed=1), sk.RandomSampler(seed=2))
    shown = PlotData("run", RunView.of(run), 1)
    steps, counts = shown.documents_of_batches
    assert steps.tolist() == list(range(10))
    for step, count in zip(steps.tolist(), counts.tolist(), strict=True):
        reads = [at(run, 1, step, rank) for rank in range(2)]
        assert count == sum(len({part[:2] for spans in read.spans for part in spans}) for read in reads) / 2
    draw({"run": run, "other": loader(range(100), sk.RandomSampler())}, tmp_path / "page.html", epoch=1)
    page = (tmp_path / "page.html").read_text()
    assert "Documents per batch" in page
    assert "Documents read in each step" in page
    others = PlotData("none", RunView.of(loader(range(100), sk.RandomSampler())))
    assert not others.documents_of_batches[1].any()


DATA = sk.TreeDataset({"web": Texts([30] * 500), "wiki": Texts([10] * 20)})


def loader_of_sources(sampler, dataset=DATA, **more):
    return sk.Loader(dataset, sampler, **{"batch_size": 10, "collate_fn": list, **more})


def test_the_log_has_the_passes_and_tokens_of_each_source_since_the_first_epoch():
    read = loader_of_sources(mixed(3, 1, seed=1), world=sk.World(2, 0))
    for _ in range(2):
        for _ in read:
            figures = read.figures()
            counts = read.history().by_source()
            assert figures["passes/web"] == counts["web"] / 500
            assert figures["passes/wiki"] == counts["wiki"] / 20
            assert figures["tokens/web"] == counts["web"] * 30
            assert figures["tokens/wiki"] == counts["wiki"] * 10


def test_batches_count_the_passes_of_sources_by_their_share_of_the_epoch():
    read = loader_of_sources(mixed(3, 1, lanes=1), batch_size=None, batches=sk.TokenBatches(100))
    for _ in read:
        if read.step == len(read) // 2:
            assert read.figures()["passes/wiki"] == pytest.approx(200 / 4 / 20, abs=0.3)


@pytest.mark.parametrize(
    ("sampler", "mean"),
    [
        (sk.SubsetRandomSampler(range(20)), 1),
        (sk.SequentialSampler(25), 999),
        (sk.SequentialSampler(), 500),
        (sk.RandomSampler(seed=1), 500),
    ],
)
def test_tokens_are_counted_for_the_samples_that_a_source_reads(sampler, mean):
    data = sk.TreeDataset({"web": Texts([1] * 20 + [999] * 20), "wiki": Texts([10] * 20)})
    read = loader_of_sources(sk.MixtureSampler({"web": sampler, "wiki": None}, 40, lanes=1), data)
    for _ in read:
        assert read.figures()["tokens/web"] == read.history().by_source()["web"] * mean


def test_a_run_that_resumed_on_other_ranks_counts_from_its_first_epoch():
    started, resumed = (loader_of_sources(mixed(3, 1), world=sk.World(ranks, 0)) for ranks in (4, 2))
    started.set_epoch(3)
    resumed.load_state_dict(started.state_dict(step=5))
    figures = resumed.figures()
    assert figures["passes/wiki"] == pytest.approx((3 * 400 + 200) / 4 / 20, abs=0.3)


def test_edits_that_skip_or_exclude_ids_count_what_was_drawn():
    edits = [sk.Edit(at=100, skip=50, without=[500, 501]), sk.Edit(at=200, weights={"web": 1, "wiki": 1})]
    read = loader_of_sources(sk.Ledger(mixed(3, 1, lanes=1), edits))
    sources = plan(read).sources
    assert sources["wiki"].passes > 400 / 4 / 20
    assert sources["web"].passes == pytest.approx((250 * 0.75 + 200 / 2) / 500, abs=0.02)


def test_nested_mixtures_have_their_sources_by_path_and_other_chains_none():
    data = sk.TreeDataset({"web": Texts([9] * 50), "books": DATA})
    inner = mixed(1, 1, None)
    mix = sk.MixtureSampler({"web": None, "books": inner}, 400, weights={"web": 1, "books": 1}, lanes=1)
    sources = plan(loader_of_sources(mix, data)).sources
    assert {name: round(one.share, 2) for name, one in sources.items()} == {
        "web": 0.5,
        "books/web": 0.25,
        "books/wiki": 0.25,
    }
    edit = sk.Edit(at=0, weights={"web": 1, "books": 1}, source={"books": inner})
    added = sk.Ledger(sk.MixtureSampler({"web": None}, 400, lanes=1), [edit])
    assert plan(loader_of_sources(added, data)).sources == sources
    assert plan(loader_of_sources(sk.RandomSampler(), data)).sources == {}
    restarting = mixed(3, 1, passes="restart")
    assert "passes/web" not in loader_of_sources(restarting).figures()


@pytest.mark.parametrize("lanes", [3, 8])
def test_the_sources_of_a_nested_mixture_with_another_number_of_lanes_are_counted(lanes):
    data = sk.TreeDataset({"web": Texts([9] * 50), "books": DATA})
    sources = {"web": None, "books": mixed(1, 1, None, lanes=lanes)}
    read = loader_of_sources(sk.MixtureSampler(sources, 400, weights={"web": 1, "books": 1}, lanes=4), data)
    for _ in read:
        in_web = np.count_nonzero((read.history()[:] >= 50) & (read.history()[:] < 550))
        assert read.figures()["passes/books/web"] == in_web / 500


def test_a_mixture_of_files_has_its_sources_by_number_and_no_tokens_without_lengths():
    run = loader_of_sources(sk.MixtureSampler([1, 1], 100), sk.Layout([50, 50]))
    assert "tokens/0" not in run.figures()
    shares = [(one.share, one.share_of_tokens, one.passes) for one in plan(run).sources.values()]
    assert shares == [(0.5, None, 1.0)] * 2


@pytest.mark.parametrize("by", ["samples", "tokens"])
def test_a_plan_has_the_shares_of_samples_and_of_tokens(by):
    sources = plan(loader_of_sources(mixed(3, 1, 4000, by=by, lanes=1))).sources
    shares = [(one.share, one.share_of_tokens) for one in sources.values()]
    expected = [(0.75, 0.9), (0.25, 0.1)] if by == "samples" else [(0.5, 0.75), (0.5, 0.25)]
    np.testing.assert_allclose(shares, expected, atol=0.01)


def test_the_command_plan_shows_what_is_read_of_each_source(printed, tmp_path):
    config = tmp_path / "train.yaml"
    config.write_text(
        """
dataset: {kind: files, reader: npz, files: [a.npz, b.npz], lengths: [500, 20]}
sampler: {kind: mixture, weights: [3, 1], num_samples: 400}
loader: {batch_size: 10}
"""
    )
    output = " ".join(printed("plan", config).split())
    assert "source 1: 25.0 % of the samples; 5.00 passes by the end of the epoch" in output
