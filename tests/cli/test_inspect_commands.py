"""The commands validate, schema, plan, plot and help, of batches too; usage errors are one line."""

import json
import tempfile
import webbrowser

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.config.config import load_config
from tests.cli.configs import NAMES, SIZES, config, in_json, is_plain_and_narrow


def test_validate_prints_valid_or_an_error_with_a_hint(command, tmp_path):
    path = config(tmp_path, shuffle="files")
    assert command("validate", path) == (0, f"{path}: valid\n", "")
    wrong = config(tmp_path, "wrong.yaml", shuffel="files")
    code, output, errors = command("validate", wrong)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert "did you mean shuffle?" in errors
    code, result = in_json(command, "validate", wrong)
    assert (code, result["is_valid"], result["problem"]["place"]) == (1, False, "sampler.shuffel")
    unfit = config(tmp_path, "unfit.yaml", dataset={"kind": "size", "size": 9}, shuffle="files")
    code, _, errors = command("validate", unfit)
    assert code == 1
    assert "it has no files" in errors


def test_schema_is_the_json_schema_of_configs(printed):
    output = printed("schema")
    assert json.loads(output) == sk.Config.json_schema()


@pytest.mark.parametrize("shuffle", ["files", "infile"])
def test_plan_counts_what_each_rank_reads(command, printed, tmp_path, shuffle):
    path = config(tmp_path, shuffle=shuffle)
    output = printed("plan", path, "--world", 3)
    assert is_plain_and_narrow(output)
    planned = in_json(command, "plan", path, "--world", 3)[1]
    layout = sk.Layout(SIZES, NAMES)
    ranks = [sk.load_config(path).make_loader(layout, sk.World(3, rank)) for rank in range(3)]
    files = [{int(f) for s in range(len(r)) for f in layout.file_of(r.ids(s))} for r in ranks]
    assert planned["files_of_a_rank"] == max(map(len, files))
    assert planned["steps"] == len(ranks[0])
    assert planned["pads"] == sum(int(r.pads(step).sum()) for r in ranks for step in range(len(r)))
    assert planned["epoch_samples"] == sum(SIZES)
    assert 0 < planned["mixing"]["value"] <= 1
    for word in (shuffle.upper(), planned["fingerprint"], "408 samples in 8 files", "mixing", "advice"):
        assert word in output


def test_plan_of_one_sample_a_step_says_sample(printed, tmp_path):
    output = printed("plan", config(tmp_path, loader={"batch_size": 1}, shuffle="files"), "--world", 1)
    assert "batches of 1, 1 sample a step" in output
    assert "1 sample, worth 1 random one" in output


USAGE = {
    "a picture without a name": (("plot", "CONFIG"), "is missing: give a .png or .html file, or --open"),
    "a page of two configs": (("plot", "CONFIG", "CONFIG", "--open"), "--open shows one"),
    "a missing option": (("at", "CONFIG", "--epoch", 3), "Missing option '--step'; see samplerkit at --help"),
    "a rank that does not exist": (
        ("at", "CONFIG", "--epoch", 0, "--step", 0, "--rank", 3, "--world", 2),
        "rank: must be in [0, 2), got 3",
    ),
    "invalid epochs": (("when", "CONFIG", "--sample", 0, "--epochs", "a:b"), "write 3, or 0:10"),
    "a sample and a document": (
        ("when", "CONFIG", "--sample", 1, "--document", 1),
        "give one of the two",
    ),
    "a file of a sample": (("when", "CONFIG", "--sample", 1, "--file", "a"), "requires --document"),
    "no config": (("plan", "nothing.yaml"), "there is no such file"),
    "a config without a dataset": (("plan", "BARE"), "add for instance dataset: {kind: size"),
    "no such command": (("plam",), "No such command 'plam'"),
    "no such file": (("state", "nothing.json"), "cannot be read"),
    "a picture of another kind": (("plot", "CONFIG", "-o", "order.gif"), "must end in .png or .html"),
    "too high a mixing": (("plan", "CONFIG", "--mixing", 2), "must be above 0 and at most 1"),
}


@pytest.mark.parametrize(("arguments", "words"), USAGE.values(), ids=USAGE.keys())
def test_a_usage_error_is_one_line_and_exits_with_two(refused, tmp_path, arguments, words):
    bare = tmp_path / "bare.yaml"
    bare.write_text("sampler: {kind: random}\n")
    names = {"CONFIG": config(tmp_path, shuffle="files"), "BARE": str(bare)}
    assert words in refused(*(names.get(argument, argument) for argument in arguments))


def test_a_terminal_without_columns_gets_whole_numbers(printed, monkeypatch, tmp_path):
    path = config(tmp_path, shuffle=False)
    wide = printed("when", path, "--sample", 407)
    monkeypatch.setenv("COLUMNS", "0")
    assert printed("when", path, "--sample", 407) == wide


def test_plot_draws_pictures_of_configs(command, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    first = config(tmp_path, "first.yaml", shuffle="files", loader={"batch_size": 4})
    second = config(tmp_path, "second.yaml", shuffle="global", loader={"batch_size": 4})
    code, result = in_json(command, "plot", first, second, "-o", tmp_path / "order.png", "--world", 2)
    assert code == 0
    assert (tmp_path / "order.png").read_bytes().startswith(b"\x89PNG")
    assert set(result["orders"]) == {"first", "second"}


def test_plot_writes_any_name_of_a_config(command, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    path = config(tmp_path, "a$b^$ \udcff.yaml", shuffle="files", loader={"batch_size": 4})
    code, result = in_json(command, "plot", path, "-o", tmp_path / "order.html")
    assert (code, [*result["orders"]]) == (0, ["a$b^$ \\udcff"])
    assert "a$b^$ \\udcff" in (tmp_path / "order.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("display", [True, False])
def test_a_page_with_the_settings_of_a_config_is_opened_if_there_is_a_display(
    command, tmp_path, monkeypatch, display
):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    named = ("-o", tmp_path / "page.html")
    if display:  # without a name it is a temporary file
        monkeypatch.setenv("DISPLAY", ":0")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        named = ()
    path = config(tmp_path, shuffle="files", loader={"batch_size": 4})
    code, output, _ = command("plot", path, "--open", *named, "--world", 2)
    (page,) = tmp_path.glob("samplerkit-*.html" if display else "page.html")
    assert (code, output) == (0, f"{page}: {page.stat().st_size:,} bytes\n")
    assert '"mode": "files", "ranks": 2' in page.read_text(encoding="utf-8")
    assert opened == ([page.as_uri()] if display else [])


RECIPES = {
    "tokens": "{kind: tokens, max_tokens: 90, lengths: lengths.npy}",
    "classes": "{kind: classes, num_class: 2, num_val: 3, labels: keys.npy}",
}


@pytest.fixture(params=RECIPES.values(), ids=RECIPES.keys())
def batches_config(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("lengths.npy", 1 + np.arange(300) * 7 % 30)
    np.save("keys.npy", np.arange(300) % 5)
    path = tmp_path / "run.yaml"
    tail = "pad" if "classes" in request.param else "split"  # batches of classes stay whole
    path.write_text(
        "dataset: {kind: layout, sizes: [100, 200]}\nsampler: {kind: random, seed: 7}\n"
        f"batches: {request.param}\nloader: {{tail: {tail}}}\n"
    )
    return path


def test_each_command_describes_batches(batches_config, tmp_path, printed):
    ranks = ("--world", 3)
    read = load_config(batches_config)
    loaders = [read.make_loader(range(300), sk.World(3, rank)) for rank in range(3)]
    text = printed("plan", batches_config, *ranks)
    assert f"batches    {len(loaders[0].plan):,}, " in text
    assert "recipe     " in text
    planned = json.loads(printed("plan", batches_config, *ranks, "--json"))
    assert (planned["recommendation"], planned["steps"]) == (None, len(loaders[0]))
    step = ("at", batches_config, *ranks, "--epoch", 0, "--step", 1, "--rank", 1)
    at = json.loads(printed(*step, "--json"))
    assert (at["ids"], at["batch"]["numbers"]) == (list(loaders[1])[1].tolist(), [4])
    assert at["batch"]["step_tokens"] == loaders[0].tokens(1)
    assert "batch    4\n" in printed(*step)
    assert "place   batch   note\n    0      1      1       0       4" in printed(
        "when", batches_config, *ranks, "--sample", at["ids"][0]
    )
    (tmp_path / "state.json").write_text(json.dumps(loaders[2].state_dict(step=2)))
    state = printed("state", tmp_path / "state.json", "--config", batches_config, *ranks)
    assert "unit        batches" in state
    assert "batches: recipe batches-1: " in " ".join(state.split())
    assert "whole, and fits the config" in state


def test_a_plan_describes_packs(tmp_path, monkeypatch, printed):
    monkeypatch.chdir(tmp_path)
    np.save("lengths.npy", 1 + np.arange(300) * 7 % 30)
    recipe = "{kind: packs, seq_len: 20, packs: 2, lengths: lengths.npy}"
    path = tmp_path / "run.yaml"
    path.write_text(f"dataset: {{kind: size, size: 300}}\nsampler: {{kind: random}}\nbatches: {recipe}\n")

    plan = load_config(path).make_loader(range(300), sk.World(3, 0)).plan
    text = printed("plan", path, "--world", 3)
    assert "recipe     PackBatches(seq_len=20, packs=2)" in text
    density = f"{plan.efficiency():.5f}".lstrip("0")
    assert f"density    {density} of the packs is tokens; one document a row would have ." in text
    assert "cut        100 documents, 33.3 %" in text
