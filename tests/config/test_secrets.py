"""No error of a config repeats a secret: canaries at every key of every section, in every wrong shape."""

import copy
import traceback
from itertools import cycle, islice

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.config import error_messages as redaction
from samplerkit.config.datasets import DATASETS, REMOTE
from samplerkit.config.registry import BATCHES, SAMPLERS
from samplerkit.config.sections import LOADER, MIN_QUALITY

TOKEN, CAPITALS, NUMBER = "c4n4ryTok3n", "CANARY", 90210777
CANARIES = (TOKEN, CAPITALS, str(NUMBER))

# The scheme is that of a filesystem in memory: no host is contacted.
URL = f"memory://me:{TOKEN}@host/a.zip?signature={TOKEN}#{TOKEN}"
SHAPES = {
    "a token": TOKEN,
    "a word in capitals": CAPITALS,
    "a URL": URL,
    "the same without a scheme": f"me:{TOKEN}@host/keep.npy",
    "a URL with one slash": f"https:/me:{TOKEN}@host/keep.npy?token={TOKEN}",
    "a chain of URLs": f"zip://in.npy::memory://me:{TOKEN}@host/a.zip?{TOKEN}",
    "a command": f"pipe:curl -H 'Authorization: Bearer {TOKEN}' https://host/a.tar",
    "bytes": TOKEN.encode(),
    "a list": [TOKEN, URL],
    "a list of lists": [[TOKEN, [URL]]],
    "options": {"key": TOKEN, "secret": TOKEN, "password": NUMBER, "client_kwargs": {"token": NUMBER}},
    "options by their name": {"storage_options": {"key": TOKEN, "password": NUMBER}},
    "options of a remote section": {"remote": {"storage_options": {"key": TOKEN}}},
    "options in a list": [{"storage_options": {"secret": TOKEN}}, {"token": NUMBER}],
    "a mapping whose key it is": {TOKEN: None, CAPITALS: 1, URL: 2},
    "a set": {TOKEN},
    "an array": np.array([TOKEN]),
}
PATHS = {"files", "urls", "prefixes", "lengths", "cache"}
"""Keys that take paths: a word is a right value of these, and a path is shown."""

# How an argument is read follows from its type: kinds whose types are those of others are left out.
VALID = {
    "size": {"size": 8},
    "layout": {"sizes": [4, 4]},
    "files": {"files": ["a.npz"], "reader": "npz", "lengths": [8]},
    "tar": {"urls": ["a.tar"], "lengths": [8]},
    "sqlite": {"path": "a.db", "table": "samples"},
    "tree": {"parts": {"a": {"kind": "size", "size": 8}}},
    "subset": {"indices": [1]},
    "pk": {"num_val": 1, "labels": [0, 1]},
    "iter": {"sampler": [1]},
    "repeat_factor": {"factors": [1.0]},
    "ledger": {"edits": [{"at": 4, "skip": 2}], "child": {"kind": "random"}},
    "tokens": {"max_tokens": 8},
    "bucket": {"boundaries": [8], "batch_size": 2},
}
DATASET = {
    **{kind: VALID[kind] for kind in ("size", "layout", "files", "tar", "sqlite", "tree")},
    "tokens": {"files": ["a.npy"], "seq_len": 8},
    "megatron": {"prefixes": ["a"], "sequence_length": 8},
}
UNKNOWN = ("storage_option", "storage_options", "url", "headers", "seeds", TOKEN, CAPITALS, URL, "two words")


def sections():
    """Every section that a config may have: its name and keys, a valid config with it, and the path to it."""
    random = {"kind": "random"}

    def of(kind, valid=VALID):
        return {"kind": kind, **valid.get(kind, {})}

    for kind in DATASET:
        config = {"dataset": of(kind, DATASET), "sampler": random}
        yield f"dataset {kind}", DATASETS[kind].names, config, ["dataset"]
    for kind in ("files", "tar"):
        config = {"dataset": {**of(kind, DATASET), "remote": {}}, "sampler": random}
        names = REMOTE.names
        yield f"remote of {kind}", names, config, ["dataset", "remote"]
    config = {"dataset": {"kind": "tree", "parts": {"a": of("tar")}}, "sampler": random}
    yield "part of a tree", DATASETS["tar"].names, config, ["dataset", "parts", "a"]
    config = {"sampler": {"kind": "mixture", "sources": {"a": random}}}
    yield "source of a mixture", SAMPLERS["random"].names, config, ["sampler", "sources", "a"]
    names = ["at", "weights", "skip", "without", "source", "global_batch"]
    yield "edit of a ledger", names, {"sampler": of("ledger")}, ["sampler", "edits", 0]
    for kind in ("sequential", *VALID, "mixture", "distributed", "random"):
        if kind in SAMPLERS:
            config = {"sampler": {"kind": "sequential", "child": of(kind)}}
            yield f"sampler {kind}", SAMPLERS[kind].names, config, ["sampler", "child"]
    for kind in ("tokens", "bucket"):
        config = {"sampler": random, "batches": of(kind)}
        yield f"batches {kind}", BATCHES[kind].names, config, ["batches"]
    for spelling in ("_target_", "class_path"):
        config = {"sampler": {spelling: "samplerkit.RandomSampler"}}
        yield spelling, [spelling, "init_args", "seed"], config, ["sampler"]
    yield "loader", LOADER.names, {"sampler": random, "loader": {}}, ["loader"]
    config = {"dataset": of("size"), "sampler": random, "min_quality": {"mixing": 0.1}}
    yield "min_quality", MIN_QUALITY.names, config, ["min_quality"]
    names = ["dataset", "sampler", "batches", "loader", "min_quality"]
    yield "the document", names, {"sampler": random}, []


SECTIONS = [*sections()]


def plant(config, path, key, value):
    """Gives a config with a value at a key of the section at a path."""
    planted = section = copy.deepcopy(config)
    for step in path:
        section = section[step]
    section[key] = value
    return planted


def error_of(config):
    """All that the error of a config shows; None without an error."""
    try:
        sk.load_config(config)
    except sk.ConfigError as error:
        return "".join(traceback.format_exception_only(error)) + repr(
            (error.value, error.hint, error.__cause__)
        )
    return None


def is_silent(text):
    return not any(canary in text for canary in CANARIES)


def planted(keys, config, path):
    """Each key with some of the wrong shapes, in turn; a word is no wrong shape of a path."""
    keys = ("kind", "child", *keys)
    known = [(key, name) for at, key in enumerate(keys) for name in islice(cycle(SHAPES), 5 * at, 5 * at + 7)]
    for key, name in (*known, *zip(UNKNOWN, cycle(SHAPES))):
        value = SHAPES[name]
        if not (key in PATHS and isinstance(value, str | list | bytes) and TOKEN in str(value)):
            yield f"{key}, {name}", plant(config, path, key, value)


@pytest.mark.parametrize(
    ("keys", "valid", "path"), [case[1:] for case in SECTIONS], ids=[case[0] for case in SECTIONS]
)
def test_a_canary_at_any_key_in_any_wrong_shape_is_in_no_message(keys, valid, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = 0
    for name, config in planted(keys, valid, path):
        error = error_of(config)
        refused += error is not None
        assert error is None or is_silent(error), (name, error)
    assert refused > len(SHAPES)


@pytest.mark.parametrize(
    "text",
    [
        f"sampler: {{kind: random}}\ndataset: {{password: *{TOKEN}}}",
        f"sampler: {{kind: random}}\ndataset: {{password: !{TOKEN} x}}",
        f"dataset: {{storage_options: {{{TOKEN}: 1, {TOKEN}: 2}}}}",
        f"dataset: {{size: !!int {TOKEN}}}",
        f"dataset: &{TOKEN} [*{TOKEN}]",
        f"dataset: {{{TOKEN}}}\nsampler: {{kind: random}}",
        f"? [{TOKEN}]\n: 3",
        f"{TOKEN}",
        f'dataset: {{secret: "{TOKEN}\\q"}}',
        f"dataset: {{secret: @{TOKEN}}}",
    ],
)
def test_a_canary_that_yaml_cannot_read_is_in_no_message(text, tmp_path):
    (tmp_path / "run.yaml").write_text(text)
    for load, source in ((sk.Config.from_yaml, text), (sk.load_config, tmp_path / "run.yaml")):
        with pytest.raises(sk.ConfigError) as caught:
            load(source)
        assert is_silent("".join(traceback.format_exception_only(caught.value)))


def test_text_in_place_of_a_path_is_not_repeated():
    for text in (
        f"remote: {{storage_options: {{key: {TOKEN}}}}}",
        f"sampler:\n  key: {TOKEN}",
        text_of(TOKEN),
    ):
        with pytest.raises(sk.ConfigError, match="config: ") as caught:
            sk.load_config(text)
        assert is_silent(str(caught.value))
    with pytest.raises(sk.ConfigError, match="must be a string of YAML; use load_config") as caught:
        sk.Config.from_yaml(text_of(TOKEN))
    assert caught.value.value is None


def text_of(secret):
    return f"dataset: {{remote: {{storage_options: {secret}}}}}".encode()


def test_the_message_of_a_users_constructor_is_shown_without_secrets():
    class Reaching(sk.Sampler):
        def __init__(self, address: str, tries: int = 1) -> None:
            super().__init__(None)
            raise ValueError(f"cannot reach {address!r} in {tries} tries")

    if "reaching" not in SAMPLERS:
        sk.register_sampler("reaching", Reaching)
    with pytest.raises(sk.ConfigError) as caught:
        sk.load_config({"sampler": {"kind": "reaching", "address": f"me:{TOKEN}@host"}})
    assert is_silent("".join(traceback.format_exception(caught.value)))
    assert "cannot reach '...' in 1 tries" in str(caught.value)
    with pytest.raises(sk.ConfigError, match="cannot reach 'home'") as caught:
        sk.load_config({"sampler": {"kind": "reaching", "address": "home"}})
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_planted_leak_is_found(monkeypatch):
    monkeypatch.setattr(redaction, "showable", lambda text: text)
    for key, value in (("seed", TOKEN), ("seed", [URL]), ("sed", {TOKEN: 1}), ("shuffle", CAPITALS)):
        assert not is_silent(error_of({"sampler": {"kind": "random", key: value}}))


def test_values_that_are_not_secret_are_shown():
    for section, shown in (
        ({"kind": "randon"}, "'randon'"),
        ({"kind": "random", "shuffle": "GLOBL"}, "'GLOBL'"),
        ({"kind": "random", "algorithm": "CPU"}, "'CPU'"),
        ({"kind": "random", "algorithm": "samplerkit-9"}, "'samplerkit-9'"),
        ({"kind": "subset", "indices": "/scratch/run-7/keep_0001.npz"}, "'/scratch/run-7/keep_0001.npz'"),
        ({"kind": "random", "num_samples": "1e6"}, "'1e6'"),
        ({"_target_": "my_project.samplers.EveryNth"}, "'my_project.samplers.EveryNth'"),
        (
            {"kind": "ledger", "child": {"kind": "random"}, "edits": [{"at": -1}]},
            "at: must not be negative, got -1",
        ),
        (
            {"kind": "random", "partial_sise": 5},
            "sampler.partial_sise: is not a key of random, got 5; did you",
        ),
    ):
        with pytest.raises(sk.ConfigError) as caught:
            sk.load_config({"sampler": section})
        assert shown in str(caught.value)
