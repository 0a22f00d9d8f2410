"""`samplerkit check`: the findings, their exit codes, and loaders that functions make."""

import json
import textwrap
from importlib import import_module

import pytest

from samplerkit.inspect.doctor.check import check
from tests.cli.configs import config, in_json

FUNCTIONS = """
    import samplerkit as sk
    from torch.utils.data import DataLoader

    def hashed():
        # A seed from hash() differs from process to process.
        recipe = sk.RandomSampler(seed=hash("seed") % 1000)
        sampler = sk.TorchSampler(recipe, range(100), sk.World(1, 0))
        return DataLoader(range(100), 8, sampler=sampler, num_workers=2)

    def saved():
        return hashed().sampler.state_dict()

    def healthy():
        print("reading the paths")
        return sk.Loader(range(100), sk.RandomSampler(seed=7), batch_size=8)

    def failing():
        raise KeyError("PATHS")
"""


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Writes a module where it can be imported, in the folder where the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def called(name, text):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text).lstrip())

    return called


def test_a_config_is_checked_in_the_given_epoch(command, tmp_path):
    path = config(tmp_path, shuffle="files")
    code, report = in_json(command, "check", path, "--epoch", 3)
    assert (code, report["findings"]) == (0, [])


def test_check_reads_the_module_and_runs_a_process_with_other_hashes(command, refused, write_module):
    write_module("planted_loaders", FUNCTIONS)
    code, report = in_json(command, "check", "planted_loaders:hashed")
    assert code == 1
    assert [finding["code"] for finding in report["findings"]] == ["resume-inexact", "ranks-disagree"]
    assert "the seed" in report["findings"][1]["what"]
    code, output, errors = command("check", "planted_loaders:healthy", "--json")
    assert (code, json.loads(output)["findings"]) == (0, [])
    assert "reading the paths" in errors, "output of a function must not be in the JSON"
    missing = refused("check", "planted_loaders:missing")
    assert missing.startswith("samplerkit: function: cannot be imported")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (FUNCTIONS, "fails (KeyError: 'PATHS'; {name}.py, line 18)"),
        ("def failing(:", "cannot be imported (SyntaxError: invalid syntax; {name}.py, line 1)"),
        ("import sys\n\ndef failing():\n    sys.exit()", "fails (SystemExit; {name}.py, line 4)"),
        ("raise RuntimeError('no data')", "cannot be imported (RuntimeError: no data; {name}.py, line 1)"),
    ],
    ids=[
        "a function that fails",
        "a module that is no Python",
        "a function that ends",
        "a module that fails",
    ],
)
def test_a_function_that_fails_is_an_error_in_one_line_and_no_finding(refused, write_module, text, line):
    name = f"failing_loaders_{len(text)}"
    write_module(name, text)
    assert line.format(name=name) in refused("check", f"{name}:failing")


SAVING = """
    import samplerkit as sk
    from torch.utils.data import DataLoader

    def loader():
        sampler = sk.TorchSampler(sk.RandomSampler(seed=7), range(100), sk.World(1, 0))
        return DataLoader(range(100), 8, sampler=sampler, num_workers=2)

    def train():
        batches = loader()
        for batch in batches:
            pass
        return {what}
"""


@pytest.mark.parametrize(
    ("name", "what", "codes"),
    [
        ("one", "[my_sampler.state_dict() for my_sampler in [batches.sampler]]", ["resume-inexact"]),
        ("two", "batches.state_dict()", []),
    ],
)
def test_check_sees_a_module_that_saves_the_state_of_a_plain_loaders_sampler(write_module, name, what, codes):
    write_module(f"saving_{name}", SAVING.replace("{what}", what))
    findings = check(import_module(f"saving_{name}").loader)
    assert [finding.code for finding in findings] == codes
