"""`samplerkit lengths`, as a user runs it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import samplerkit as sk
from tests.cli.test_storage_commands import cache_home, command

__all__ = ["cache_home"]


@pytest.fixture
def config(tmp_path):
    with sk.TarWriter(f"{tmp_path}/train-%03d.tar", samples_per_shard=4) as writer:
        for number in range(10):
            writer.write({"__key__": f"{number}", "txt": "ä" * number, "cls": number % 2})
    path = tmp_path / "train.yaml"
    path.write_text("dataset: {kind: tar, urls: 'train-*.tar'}\nsampler: {kind: random}\n")
    return path


def test_the_bytes_of_a_field_of_tar_samples_are_their_lengths(monkeypatch, capsys, tmp_path, config):
    out = tmp_path / "lengths.npy"
    assert command(monkeypatch, "lengths", config, "--out", out, "--field", "txt") == 0
    assert capsys.readouterr().out == f"{out}: 10 samples, 0 to 18 long, 9.0 on average\n"
    assert np.load(out).tolist() == [2 * number for number in range(10)]
    other = tmp_path / "other.npy"
    options = ("--out", other, "--field", "txt", "--workers", 1, "--json")
    assert command(monkeypatch, "lengths", config, *options) == 0
    assert json.loads(capsys.readouterr().out)["longest"] == 18
    assert other.read_bytes() == out.read_bytes()


def test_a_function_of_the_users_measures_samples(monkeypatch, tmp_path, config):
    (tmp_path / "measures_of_mine.py").write_text(
        "def letters(sample):\n    return len(sample['txt'].decode())\n"
    )
    monkeypatch.chdir(tmp_path)
    assert (
        command(monkeypatch, "lengths", config, "--out", "l.npy", "--function", "measures_of_mine:letters")
        == 0
    )
    assert np.load("l.npy").tolist() == list(range(10))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--field", "jpg"], "field: is none of the sample, got 'jpg'; there are __key__, __url__, cls, txt"),
        ([], "field: has no length"),
        (["--field", "txt", "--function", "a:b"], "stands beside --field"),
        (["--function", "json:nothing"], "cannot be imported"),
        (["--function", "json:loads"], "cannot be measured"),
    ],
)
def test_what_cannot_be_measured_is_one_line(monkeypatch, capsys, tmp_path, config, options, says):
    assert command(monkeypatch, "lengths", config, "--out", tmp_path / "l.npy", *options) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_layout_has_no_samples_to_measure(monkeypatch, capsys, tmp_path):
    path = tmp_path / "layout.yaml"
    path.write_text("dataset: {kind: size, size: 10}\nsampler: {kind: random}\n")
    assert command(monkeypatch, "lengths", path, "--out", tmp_path / "l.npy") == 2
    assert "dataset: says only a layout" in capsys.readouterr().err
