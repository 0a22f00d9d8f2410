"""The page about the command line shows the output of the commands."""

from __future__ import annotations

import json
import re

import pytest

import samplerkit as sk
from samplerkit.inspect.doctor.findings import KINDS
from tests.cli.processes import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
CONFIGS = dict(re.findall(r"^```yaml\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SHOWN = re.findall(r"^```console\n\$ (.*?)\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
MEASURED = ("start ", "memory ")
"""Lines that differ from machine to machine and from run to run."""


def lasting(text):
    return [line for line in text.splitlines() if not line.startswith(MEASURED)]


@pytest.mark.parametrize(("line", "output"), SHOWN, ids=[line for line, _ in SHOWN])
def test_a_command_prints_what_the_page_says(line, output, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for name, text in CONFIGS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    train = sk.load_config("train.yaml")
    state = train.make_loader(train.dataset, sk.World(4, 0)).state_dict(step=40)
    (tmp_path / "state.json").write_text(json.dumps(state))
    _, printed, errors = command(*line.split()[1:])
    assert lasting(printed + errors) == lasting(output)


def test_the_page_shows_each_command_and_both_configs():
    assert set(CONFIGS) == {"train.yaml", "huge.yaml"}
    assert {line.split()[1] for line, _ in SHOWN} == {
        "at",
        "when",
        "plan",
        "check",
        "seen",
        "state",
        "validate",
    }


def test_the_table_has_every_finding_with_the_meaning_of_the_doctor():
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", PAGE, re.MULTILINE))
    assert {code: rows.get(code) for code in KINDS} == {code: kind.meaning for code, kind in KINDS.items()}
