"""What a run of tokens reads, in tokens and documents: in a plan, in a step, and in the commands."""

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
from tests.loading.rings import Rings

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
    assert "tokens" not in planned.to_dict()


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
    marks = PlotData("run", RunView.of(run), 1).documents_read
    expected = [
        (step, rank, file, document)
        for rank in range(3)
        for step in range(at(run, 1, 0, rank).num_steps)
        for spans in at(run, 1, step, rank).spans
        for file, document, _, _ in spans
    ]
    reported = np.stack([marks.steps, marks.ranks, marks.files, marks.places], axis=1)
    assert marks.are_known
    assert sorted(map(tuple, reported.tolist())) == sorted(expected)
    assert {file for _, _, file, _ in expected} == {0, 1}


def test_marks_of_a_file_of_2_to_the_36_tokens_without_an_index_need_little_memory(tmp_path):
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(2**36)
    data = sk.TokenDataset(tmp_path / "large.bin", 1024, dtype="u1")
    view = RunView.of(loader(data, sk.RandomSampler(seed=2), ranks=40, batch_size=8))
    tracemalloc.start()
    marks = PlotData("run", view).documents_read
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not marks.are_known
    assert 2000 < marks.steps.size <= MAX_POINTS
    assert marks.places.min() < 2**30
    assert marks.places.max() > 2**36 - 2**30
    assert {0, 39} < {*marks.ranks.tolist()}
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
