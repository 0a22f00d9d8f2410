"""The commands that show an order: their text, their JSON, their exit codes, and their one-line errors."""

from __future__ import annotations

import json
import sys
import tempfile
import textwrap
import webbrowser
from importlib import import_module

import pytest
import torch
import yaml

import samplerkit as sk
from samplerkit.cli.main import main
from samplerkit.inspect.doctor.check import check
from samplerkit.inspect.time_machine import at, when
from tests.cli.processes import run

SIZES = [50, 70, 3, 61, 49, 52, 73, 50]
NAMES = [f"shard-{number:04}.tar" for number in range(len(SIZES))]


def config(folder, name="train.yaml", dataset=None, loader=None, **sampler):
    layout = {"kind": "layout", "sizes": SIZES, "names": NAMES}
    sections = {
        "dataset": dataset or layout,
        "sampler": {"kind": "distributed", "seed": 7, **sampler},
        "loader": loader or {"batch_size": 8},
    }
    path = folder / name
    path.write_text(yaml.safe_dump(sections), encoding="utf-8")
    return str(path)


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs the command in this process, in 80 columns; gives its exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def called(*arguments):
        monkeypatch.setattr(sys, "argv", ["samplerkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        output, errors = capsys.readouterr()
        return end.value.code or 0, output, errors

    return called


def in_json(command, *arguments):
    code, output, errors = command(*arguments, "--json")
    assert errors == ""
    return code, json.loads(output)


def is_plain_and_narrow(text):
    return "\x1b" not in text and all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())


def test_at_says_what_the_loader_reads(command, tmp_path):
    path = config(tmp_path, shuffle="files")
    code, output, _ = command("at", path, "--epoch", 3, "--step", 2, "--rank", 1, "--world", 2)
    assert code == 0
    assert is_plain_and_narrow(output)
    loader = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(2, 1))
    loader.set_epoch(3)
    ids = loader.ids(2).tolist()
    words = output.split()
    assert all(str(sample) in words for sample in ids)
    assert "epoch 3, step 2 of 26, rank 1 of 2" in output
    assert "shard-" in output
    code, told = in_json(command, "at", path, "--epoch", 3, "--step", 2, "--rank", 1, "--world", 2)
    assert (code, told["ids"]) == (0, ids)
    assert told["fingerprint"] in output
    files = [NAMES[file] for file in sk.Layout(SIZES).file_of(ids)]
    assert told["files"] == files


def test_at_shows_pads_and_long_batches_as_such(command, tmp_path):
    path = config(tmp_path, shuffle="global")
    code, output, _ = command("at", path, "--epoch", 0, "--step", 10, "--rank", 4, "--world", 5)
    assert code == 0
    assert "2 samples, 1 pad among them" in output
    long = config(tmp_path, loader={"batch_size": 100})
    assert "and 36 more; --json lists all" in " ".join(
        command("at", long, "--epoch", 0, "--step", 0)[1].split()
    )


def test_when_says_where_a_sample_is_read_in_each_epoch(command, tmp_path):
    path = config(tmp_path, shuffle="partial", partial_size=40)
    code, output, _ = command("when", path, "--sample", 123, "--epochs", "0:4", "--world", 2)
    assert code == 0
    assert is_plain_and_narrow(output)
    assert f"{NAMES[3]}" in output
    loader = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(2, 0))
    rows = [line.split() for line in output.splitlines()[-4:]]
    for row, found in zip(rows, when(loader, 123, range(4)), strict=True):
        (time,) = found.occurrences
        assert row == [str(v) for v in (time.epoch, time.rank, time.step, time.place, time.position)]
    code, told = in_json(command, "when", path, "--sample", 123, "--epochs", "2", "--world", 2)
    assert told["epochs"][0]["occurrences"][0]["step"] == int(rows[2][2])


def test_when_tells_dropped_from_never_drawn(command, tmp_path):
    path = config(tmp_path, shuffle=False, loader={"batch_size": 50, "tail": "drop"})
    assert "the tail drops it" in command("when", path, "--sample", 407)[1]
    subset = {"kind": "subset", "indices": [1, 2, 2, 3]}
    path = config(tmp_path, shuffle=False, child=subset)
    assert "not drawn" in command("when", path, "--sample", 0)[1]
    assert command("when", path, "--sample", 2)[1].count("\n    0 ") == 2


def test_at_and_when_go_on_from_a_checkpoint(command, tmp_path):
    path = config(tmp_path, shuffle="files")
    saved = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(4, 0)).state_dict(step=5)
    state = tmp_path / "state.json"
    state.write_text(json.dumps(saved))
    resumed = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(2, 0))
    resumed.load_state_dict(saved)
    told = in_json(command, "at", path, "--epoch", 0, "--step", 0, "--world", 2, "--state", state)[1]
    assert told["ids"] == resumed.ids(0).tolist() == at(resumed, 0, 0).ids.tolist()
    fresh = in_json(command, "at", path, "--epoch", 0, "--step", 0, "--world", 2)[1]
    assert fresh["ids"] != told["ids"]


def test_a_million_million_samples_are_planned_and_found(command, tmp_path):
    path = config(tmp_path, dataset={"kind": "size", "size": 10**12}, loader={"batch_size": 256})
    code, told = in_json(command, "at", path, "--epoch", 3, "--step", 340, "--rank", 3, "--world", 8)
    assert (code, len(told["ids"])) == (0, 256)
    sample = told["ids"][17]
    found = in_json(command, "when", path, "--sample", sample, "--epochs", "3", "--world", 8)[1]
    (time,) = found["epochs"][0]["occurrences"]
    assert (time["rank"], time["step"], time["place"]) == (3, 340, 17)
    plan = in_json(command, "plan", path, "--world", 8)[1]
    assert plan["steps"] == 10**12 // 2048
    assert plan["order_bytes"] < 2**20 < plan["list_bytes"]
    assert plan["fingerprint"] == told["fingerprint"] == found["fingerprint"]


def test_plan_counts_what_each_rank_really_reads(command, tmp_path):
    path = config(tmp_path, shuffle="files")
    code, output, _ = command("plan", path, "--world", 3)
    assert code == 0
    assert is_plain_and_narrow(output)
    plan = in_json(command, "plan", path, "--world", 3)[1]
    layout = sk.Layout(SIZES, NAMES)
    ranks = [sk.load_config(path).make_loader(layout, sk.World(3, rank)) for rank in range(3)]
    files = [{int(f) for s in range(len(r)) for f in layout.file_of(r.ids(s))} for r in ranks]
    assert plan["files_of_a_rank"] == max(map(len, files))
    assert plan["steps"] == len(ranks[0])
    assert plan["pads"] == sum(int(r.pads(step).sum()) for r in ranks for step in range(len(r)))
    assert plan["epoch_samples"] == sum(SIZES)
    assert 0 < plan["mixing"]["value"] <= 1
    for word in ("FILES", plan["fingerprint"], "408 samples in 8 files", "mixing", "advice"):
        assert word in output


@pytest.mark.parametrize(("threshold", "mode"), [(408, "global"), (407, "partial")])
def test_plan_says_why_adaptive_has_chosen_its_mode(command, tmp_path, threshold, mode):
    plan = in_json(command, "plan", config(tmp_path, shuffle="adaptive", adaptive_threshold=threshold))[1]
    assert plan["mode"] == mode
    assert f"adaptive_threshold, {threshold}" in plan["reason"]


def test_plan_recommends_within_a_cache_budget_or_says_why_not(command, tmp_path):
    path = config(tmp_path, dataset={"kind": "layout", "sizes": [1437] * 64}, shuffle="partial")
    told = in_json(command, "plan", path, "--world", 1, "--mixing", 0.4)[1]["recommendation"]
    assert told["chosen"]["mixing"] >= 0.4
    tight = in_json(command, "plan", path, "--world", 1, "--mixing", 0.9, "--cache-files", 2)[1]
    assert tight["recommendation"]["chosen"] is None
    assert "nothing mixes .900 within 2 files" in tight["recommendation"]["reason"]


def test_check_finds_the_trap_and_exits_with_one(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trap = {"kind": "layout", "sizes": [500] * 8}
    config(tmp_path, dataset=trap, shuffle="partial", partial_size=500)
    path = "train.yaml"
    code, output, errors = command("check", path, "--world", 2)
    assert (code, errors) == (1, "")
    assert is_plain_and_narrow(output)
    assert "partial-size-in-file" in output
    assert "mend   say partial_size=750" in output
    code, told = in_json(command, "check", path, "--world", 2)
    assert code == 1
    assert [finding["code"] for finding in told["findings"]] == ["partial-size-in-file"]
    healthy = config(tmp_path, dataset=trap, shuffle="partial", partial_size=750)
    code, output, _ = command("check", healthy, "--world", 2)
    assert code == 0
    assert "nothing found by" in output


FUNCTIONS = """
    import samplerkit as sk

    def hashed():
        # A seed from hash() is another one in each process.
        return sk.Loader(range(100), sk.RandomSampler(seed=hash("seed") % 1000), batch_size=8)

    def healthy():
        return sk.Loader(range(100), sk.RandomSampler(seed=7), batch_size=8)

    def talking():
        print("reading the paths")
        return healthy()

    def failing():
        raise KeyError("PATHS")
"""


def test_check_sees_seeds_that_come_from_hashes_by_asking_another_process(command, tmp_path, monkeypatch):
    (tmp_path / "planted_loaders.py").write_text(textwrap.dedent(FUNCTIONS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code, told = in_json(command, "check", "planted_loaders:hashed")
    assert code == 1
    assert [finding["code"] for finding in told["findings"]] == ["ranks-disagree"]
    assert "the seed" in told["findings"][0]["what"]
    assert in_json(command, "check", "planted_loaders:healthy")[0] == 0
    code, output, errors = command("check", "planted_loaders:missing")
    assert (code, output) == (2, "")
    assert errors.startswith("samplerkit: function: cannot be imported")
    assert errors.count("\n") == 1


def test_what_a_function_prints_is_no_part_of_the_json(command, tmp_path, monkeypatch):
    (tmp_path / "talking_loaders.py").write_text(textwrap.dedent(FUNCTIONS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code, output, errors = command("check", "talking_loaders:talking", "--json")
    assert (code, json.loads(output)["findings"]) == (0, [])
    assert "reading the paths" in errors


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (FUNCTIONS, "fails (KeyError: 'PATHS'; {name}.py, line 15)"),
        ("def failing(:", "cannot be imported (SyntaxError: invalid syntax; {name}.py, line 1)"),
        ("raise RuntimeError('no data')", "cannot be imported (RuntimeError: no data; {name}.py, line 1)"),
    ],
    ids=["a function that fails", "a module that is no Python", "a module that fails"],
)
def test_a_function_that_fails_is_no_finding_but_one_line(command, tmp_path, monkeypatch, text, line):
    name = f"failing_loaders_{len(text)}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(text).lstrip())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code, output, errors = command("check", f"{name}:failing")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert line.format(name=name) in errors


def test_validate_says_yes_or_what_to_mend(command, tmp_path):
    path = config(tmp_path, shuffle="files")
    assert command("validate", path) == (0, f"{path}: valid\n", "")
    wrong = config(tmp_path, "wrong.yaml", shuffel="files")
    code, output, errors = command("validate", wrong)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert "did you mean shuffle?" in errors
    code, told = in_json(command, "validate", wrong)
    assert (code, told["is_valid"], told["problem"]["place"]) == (1, False, "sampler.shuffel")
    unfit = config(tmp_path, "unfit.yaml", dataset={"kind": "size", "size": 9}, shuffle="files")
    code, _, errors = command("validate", unfit)
    assert code == 1
    assert "it has no files" in errors


def test_schema_is_the_json_schema_of_configs(command):
    code, output, _ = command("schema")
    assert code == 0
    assert json.loads(output) == sk.Config.json_schema()


def saved_state(path, step=3):
    loader = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(2, 0))
    return loader.state_dict(step=step)


@pytest.mark.parametrize("kind", ["json", "torch"])
def test_state_finds_a_state_in_a_checkpoint_and_compares_it_with_a_config(command, tmp_path, kind):
    path, file = config(tmp_path, shuffle="files"), tmp_path / f"checkpoint.{kind}"
    saved = saved_state(path)
    if kind == "json":
        file.write_text(json.dumps(saved))
    else:
        torch.save({"model": torch.zeros(3), "data": [saved]}, file)
    code, output, _ = command("state", file, "--config", path, "--world", 4)
    assert code == 0
    assert is_plain_and_narrow(output)
    assert "whole, and fits the config" in output
    told = in_json(command, "state", file)[1]["states"][0]
    assert told["place"] == ("the file itself" if kind == "json" else "/data/0")
    assert told["position"] == saved["position"] == 48
    assert told["order"] == in_json(command, "plan", path, "--world", 2)[1]["fingerprint"]
    other = config(tmp_path, "other.yaml", shuffle="global")
    code, _, errors = command("state", file, "--config", other)
    assert (code, errors.count("\n")) == (1, 1)
    assert "state: sampler: is another one" in errors


def test_state_sees_damage_and_what_is_no_state(command, tmp_path):
    path, file = config(tmp_path, shuffle="files"), tmp_path / "state.json"
    file.write_text(json.dumps({**saved_state(path), "position": 64}))
    code, output, errors = command("state", file)
    assert code == 1
    assert "damaged" in output
    assert "checksum" in errors
    file.write_text("{}")
    code, _, errors = command("state", file)
    assert (code, errors.count("\n")) == (1, 1)
    assert "holds no state" in errors


class Code:
    """What a hostile checkpoint would be made of."""

    def __reduce__(self):
        return print, ("it ran",)


def test_state_runs_no_code_of_a_checkpoint(command, tmp_path):
    torch.save({"data": Code()}, tmp_path / "hostile.pt")
    code, output, errors = command("state", tmp_path / "hostile.pt")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert "is neither JSON nor a checkpoint that is safe to read" in errors


def test_plot_draws_a_picture_and_a_page_that_stands_alone(command, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    first = config(tmp_path, "first.yaml", shuffle="files", loader={"batch_size": 4})
    second = config(tmp_path, "second.yaml", shuffle="global", loader={"batch_size": 4})
    picture, page = tmp_path / "order.png", tmp_path / "report.html"
    code, told = in_json(command, "plot", first, second, "-o", picture, "--world", 2)
    assert code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert set(told["orders"]) == {"first", "second"}
    assert command("plot", first, "-o", page)[0] == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 2 * 4
    assert "prefers-color-scheme: dark" in text
    assert not {"http://", "https://", "<script", 'src="/'} & set(text.split('"'))
    assert "<img alt=" in text


@pytest.mark.parametrize("display", [True, False])
def test_a_page_with_the_settings_of_a_config_is_opened_where_there_is_a_display(
    command, tmp_path, monkeypatch, display
):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if display:
        monkeypatch.setenv("DISPLAY", ":0")
    path = config(tmp_path, shuffle="files", loader={"batch_size": 4})
    code, output, _ = command("plot", path, "--open", "-o", tmp_path / "page.html", "--world", 2)
    assert code == 0
    assert str(tmp_path / "page.html") in output.replace("\n", "")
    assert '"mode": "files", "ranks": 2' in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert opened == ([(tmp_path / "page.html").as_uri()] if display else [])


def test_a_page_without_a_name_lies_among_the_temporary_files(command, tmp_path, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda _: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, told = in_json(command, "plot", config(tmp_path, shuffle="global"), "--open")
    assert code == 0
    assert [str(page) for page in tmp_path.glob("samplerkit-*.html")] == [told["output"]]


def test_a_missing_matplotlib_is_one_line_with_the_mend(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, output, errors = command("plot", config(tmp_path), "-o", tmp_path / "order.png")
    assert (code, output) == (2, "")
    line = "samplerkit: plot: needs matplotlib, which is not installed; install it with: "
    assert errors == f'{line}pip install "samplerkit[plot]"\n'
    assert not (tmp_path / "order.png").exists()


USAGE = {
    "a picture without a name": (("plot", "CONFIG"), "is missing: say a .png or .html file, or --open"),
    "a page of two configs": (("plot", "CONFIG", "CONFIG", "--open"), "--open shows one"),
    "a page that is a picture": (("plot", "CONFIG", "--open", "-o", "order.png"), "must end in .html"),
    "a missing option": (("at", "CONFIG", "--epoch", 3), "Missing option '--step'; see samplerkit at --help"),
    "a wrong number": (("at", "CONFIG", "--epoch", "x", "--step", 0), "Invalid value for '--epoch'"),
    "a rank that is not there": (
        ("at", "CONFIG", "--epoch", 0, "--step", 0, "--rank", 3, "--world", 2),
        "rank: must be in [0, 2), got 3",
    ),
    "a rank without a world": (
        ("at", "CONFIG", "--epoch", 0, "--step", 0, "--rank", 3),
        "say the number of ranks as world",
    ),
    "a rank to check without a world": (("check", "CONFIG", "--rank", 3), "the number of ranks as --world"),
    "endless epochs that begin too early": (
        ("when", "CONFIG", "--sample", 0, "--epochs=-1:1000000000000"),
        "holds no epochs",
    ),
    "a step that is not there": (
        ("at", "CONFIG", "--epoch", 0, "--step", 51),
        "step: must be in [0, 51) in epoch 0 of rank 0, got 51",
    ),
    "a sample that is not there": (
        ("when", "CONFIG", "--sample", 408),
        "outside of a dataset of 408 samples",
    ),
    "epochs that are none": (("when", "CONFIG", "--sample", 0, "--epochs", "a:b"), "write 3, or 0:10"),
    "no config": (("plan", "nothing.yaml"), "there is no such file"),
    "a config without a dataset": (("plan", "BARE"), "add for instance dataset: {kind: size"),
    "a config without a dataset to check": (("check", "BARE"), "add for instance dataset: {kind: size"),
    "no such command": (("plam",), "No such command 'plam'"),
    "no such file": (("state", "nothing.json"), "cannot be read"),
    "a picture of another kind": (("plot", "CONFIG", "-o", "order.gif"), "must end in .png or .html"),
    "too high a mixing": (("plan", "CONFIG", "--mixing", 2), "must be above 0 and at most 1"),
}


@pytest.mark.parametrize(("arguments", "words"), USAGE.values(), ids=USAGE.keys())
def test_a_mistake_of_use_is_one_line_and_exits_with_two(command, tmp_path, arguments, words):
    bare = tmp_path / "bare.yaml"
    bare.write_text("sampler: {kind: random}\n")
    names = {"CONFIG": config(tmp_path, shuffle="files"), "BARE": str(bare)}
    code, output, errors = command(*(names.get(argument, argument) for argument in arguments))
    assert (code, output) == (2, "")
    assert errors.startswith("samplerkit: ")
    assert errors.count("\n") == 1
    assert words in errors


def test_help_names_every_command(command):
    code, output, _ = command("--help")
    assert code == 0
    for name in ("demo", "validate", "schema", "plan", "plot", "check", "at", "when", "state"):
        assert name in output


def test_the_real_command_prints_without_colour_into_a_pipe(tmp_path):
    path = config(tmp_path, shuffle="files")
    arguments = ("at", path, "--epoch", "0", "--step", "1", "--world", "2")
    ended = run((sys.executable, "-m", "samplerkit.cli.main", *arguments), tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert is_plain_and_narrow(ended.stdout)
    assert "rank 0 of 2" in ended.stdout


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
        ("one", "batches.sampler.state_dict()", ["resume-inexact"]),
        ("two", "{'sampler': batches.batch_sampler.sampler.state_dict()}", ["resume-inexact"]),
        ("three", "[my_sampler.state_dict() for my_sampler in [batches.sampler]]", ["resume-inexact"]),
        ("four", "batches.state_dict()", []),
        ("five", "batches.sampler.epoch", []),
    ],
)
def test_check_sees_a_module_that_saves_the_state_of_a_plain_loaders_sampler(
    command, tmp_path, monkeypatch, name, what, codes
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / f"saving_{name}.py").write_text(textwrap.dedent(SAVING).replace("{what}", what))
    if name in {"one", "four"}:  # the command looks in another process too, which takes seconds
        code, told = in_json(command, "check", f"saving_{name}:loader")
        assert code == bool(codes)
        assert [finding["code"] for finding in told["findings"]] == codes
    else:
        found = check(import_module(f"saving_{name}").loader)
        assert [finding.code for finding in found] == codes
