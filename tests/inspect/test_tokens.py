"""What a run of tokens reads, in tokens and documents: of a plan, of a step, and in the commands."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import samplerkit as sk
from samplerkit.cli.main import app
from samplerkit.inspect.plan import plan
from samplerkit.inspect.time_machine import at
from tests.loading.rings import Rings

DOCUMENTS = [30, 50, 7, 13, 60, 40]
"""Tokens of each, one after another: 200."""


@pytest.fixture
def prefix(tmp_path):
    begin = 0
    with sk.TokenWriter(tmp_path / "corpus", dtype="u2") as writer:
        for length in DOCUMENTS:
            writer.write(np.arange(begin, begin + length))
            begin += length
    return tmp_path / "corpus"


def loader(data, sampler=None, ranks=2, batch_size=2):
    sampler = sk.BlockSampler(2, seed=3) if sampler is None else sampler
    return sk.Loader(data, sampler, batch_size=batch_size, world=sk.World(ranks, 0))


def test_a_plan_counts_tokens_the_documents_that_are_cut_and_the_steps_between_changes(prefix):
    data = sk.TokenDataset(prefix, 5, block_len=20, documents="idx", phase=True, seed=1)
    found = plan(loader(data)).tokens
    assert (found.seq_len, found.block_len) == (5, 20)
    assert (found.tokens_a_step, found.tokens_an_epoch) == (20, 200)
    assert found.steps_to_a_change == 2
    begins = [data.spans(id, epoch=0)[0][2] for id in range(40)]
    assert (found.cut, found.is_exact) == (sum(first > 0 for first in begins) / 40, True)
    assert plan(loader(data, ranks=3)).tokens.steps_to_a_change == 4
    assert plan(loader(data, sk.BlockSampler(7), ranks=3)).tokens.steps_to_a_change is None
    assert plan(loader(data, sk.RandomSampler())).tokens.steps_to_a_change == 0
    assert plan(loader(Rings([48], 4, 12))).tokens.cut is None
    told = plan(loader(range(100), sk.RandomSampler()))
    assert told.tokens is None
    assert "tokens" not in told.to_dict()


@pytest.mark.parametrize("epoch", [0, 4])
def test_a_step_is_told_in_documents_and_these_are_what_is_read(prefix, epoch):
    data = sk.TokenDataset(prefix, 5, block_len=20, documents="idx", seed=1)
    run = loader(data)
    starts = np.cumsum([0, *DOCUMENTS])
    read = at(run, epoch, step=3, rank=1)
    rows = data.__getitems__(read.ids, np.full(read.ids.size, epoch))
    for row, spans in zip(rows.tolist(), read.spans, strict=True):
        told = [starts[document] + first + np.arange(count) for _, document, first, count in spans]
        assert np.concatenate(told).tolist() == row
    assert json.loads(json.dumps(read.to_dict()))["spans"] == [[list(one) for one in of] for of in read.spans]
    assert at(loader(range(100), sk.RandomSampler()), 0, 0).spans is None


def test_the_commands_tell_tokens_and_documents(prefix):
    config = prefix.with_name("run.yaml")
    config.write_text(
        "dataset: {kind: tokens, files: corpus, seq_len: 5, block_len: 20, documents: idx, seed: 1}\n"
        "sampler: {kind: block, pool: 2, seed: 3}\n"
        "loader: {batch_size: 2}\n"
    )
    planned = CliRunner().invoke(app, ["plan", str(config), "--world", "2"])
    assert planned.exit_code == 0, planned.output
    for line in (
        "20 a step, 200 an epoch, in windows of 5 and blocks of 20",
        "of the windows begin within one",
        "may change every 2 steps",
    ):
        assert line in planned.output
    told = CliRunner().invoke(app, ["at", str(config), "--epoch", "0", "--step", "1", "--world", "2"])
    assert told.exit_code == 0, told.output
    assert "document" in told.output
