"""The command line without a launch: its errors are one line with a hint, and its page shows its output."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

import samplerkit
import samplerkit as sk
from samplerkit.inspect.doctor.findings import MEANINGS
from tests.cli.processes import ROOT
from tests.programs import Program


@pytest.fixture
def run_yaml(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("dataset: {kind: layout, sizes: [60, 40]}\nsampler: {kind: random}\n")
    return str(path)


def test_version(printed):
    assert printed("--version") == f"samplerkit {samplerkit.__version__}\n"


@pytest.mark.parametrize(
    ("extra", "module", "options"),
    [("demo", "sklearn.datasets", []), ("plot", "matplotlib.figure", ["run.yaml", "-o", "order.png"])],
)
def test_a_missing_package_is_one_line_with_the_hint(refused, run_yaml, monkeypatch, extra, module, options):
    monkeypatch.chdir(Path(run_yaml).parent)
    monkeypatch.setitem(sys.modules, module, None)
    hint = f'install it with: pip install "samplerkit[{extra}]"'
    problem = f"needs {module.partition('.')[0]}, which is not installed"
    assert refused(extra, *options) == f"samplerkit: {extra}: {problem}; {hint}\n"
    assert not Path("order.png").exists()


def test_a_mistake_in_a_kept_config_is_one_line_before_any_launch(refused, tmp_path):
    pytest.importorskip("sklearn")
    path = tmp_path / "train.yaml"
    path.write_text("sampler: {kind: distributed, shuffle: filez}\n")
    error = refused("demo", "--keep", tmp_path)
    assert error.startswith("samplerkit: sampler.shuffle: ")
    assert error.endswith(f"in the config file {path}\n")


def test_a_folder_that_cannot_be_written_is_a_usage_error(refused, tmp_path):
    (tmp_path / "file").write_text("")
    assert "--keep" in refused("demo", "--keep", tmp_path / "file" / "below")


def test_a_file_name_that_is_not_valid_text_is_read_and_printed(command, monkeypatch, tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.txt")
    path.write_text("a\nb\n")
    dataset = sk.FileDataset([path], "text")
    assert len(sk.Loader(dataset, sk.RandomSampler(), batch_size=1).fingerprint) == 12
    config = tmp_path / "run.yaml"
    config.write_text("dataset: {kind: files, files: '*.txt', reader: text}\nsampler: {kind: random}")
    stdout = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stdout, encoding="utf-8"))
    assert command("at", config, "--epoch", 0, "--step", 0, "--json")[0] == 0
    assert set(json.loads(stdout.getvalue())["files"]) == {"\udcff.txt"}


def full_disk():
    return os.open("/dev/full", os.O_WRONLY)


def broken_pipe():
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize(
    ("opened", "line"),
    [(full_disk, "samplerkit: standard output: No space left on device\n"), (broken_pipe, "")],
)
def test_a_stdout_that_cannot_be_written_is_at_most_one_line_and_exit_code_1(run_yaml, opened, line):
    stdout = opened()
    try:
        with Program(["-m", "samplerkit", "validate", run_yaml], stdout=stdout, stderr=PIPE) as process:
            errors = process.communicate()[1]
    finally:
        os.close(stdout)
    assert (errors, process.returncode) == (line, 1)


def test_a_closed_stdout_is_one_line_and_exit_code_1(run_yaml):
    command = f"{sys.executable} -m samplerkit validate {run_yaml} >&-"
    result = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (result.stderr, result.returncode) == ("samplerkit: standard output: is closed\n", 1)


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
    assert {code: rows.get(code) for code in MEANINGS} == MEANINGS
