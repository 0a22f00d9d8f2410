"""Datasets at URLs in a config: the section `remote`, its errors, and secrets that none of them shows."""

from __future__ import annotations

import traceback

import numpy as np
import pytest
import yaml

import samplerkit as sk
from tests.config.answers import valid
from tests.storage.files.folders import write_npz
from tests.storage.remote.server import served

SAMPLER = {"kind": "random", "shuffle": "files", "seed": 2}
SECRET = "5ec4e7"  # noqa: S105  # no secret of anyone's


def files(**remote):
    """A config of two files at an address without a server."""
    dataset = {
        "kind": "files",
        "files": ["http://127.0.0.1:9/a.npz", "http://127.0.0.1:9/b.npz"],
        "reader": "npz",
        "lengths": [5, 3],
        **({"remote": remote} if remote else {}),
    }
    return {"dataset": dataset, "sampler": SAMPLER}


def written(folder, config):
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


@pytest.fixture(name="remote_run")
def fixture_remote_run(tmp_path):
    """A folder of a web server with a config, its data and an array."""
    write_npz(tmp_path / "web" / "data", [4, 4, 4], "{}.npz")
    np.save(tmp_path / "web" / "keep.npy", np.array([7, 2, 9]))
    dataset = {"kind": "files", "files": [f"data/{number}.npz" for number in range(3)], "reader": "npz"}
    dataset |= {"lengths": [4, 4, 4], "remote": {"cache": str(tmp_path / "cache"), "attempts": 2}}
    written(tmp_path / "web", {"dataset": dataset, "sampler": {"kind": "subset", "indices": "keep.npy"}})
    with served(tmp_path / "web") as web:
        yield web


def test_a_config_reads_files_from_a_web_server_into_its_own_cache(remote_run, tmp_path, monkeypatch):
    dataset = {
        "kind": "files",
        "files": [f"{remote_run.url}/data/{number}.npz" for number in range(3)],
        "reader": "npz",
        "remote": {"cache": "cache", "timeout": 5, "attempts": 2},
    }
    (tmp_path / "run").mkdir()
    config = sk.load_config(written(tmp_path / "run", {"dataset": dataset, "sampler": SAMPLER}))
    ids = [int(id) for batch in config.make_loader(world=sk.World()) for id in batch["id"]]
    assert ids == list(config.sampler.order(config.dataset))
    assert any((tmp_path / "run" / "cache").iterdir())
    config.dataset.close()
    # It can be written and read again, from another folder.
    monkeypatch.chdir(tmp_path)
    again = sk.load_config(yaml.safe_load(yaml.safe_dump(config.to_dict())))
    assert again == config
    remote = {**dataset["remote"], "cache": str(tmp_path / "run" / "cache")}
    assert again.to_dict()["dataset"]["remote"] == remote
    assert len(again.dataset) == 12
    again.dataset.close()
    assert len(remote_run.calls("GET")) == 3


def test_remote_false_passes_the_url_itself_to_the_reader():
    config = files()
    config["dataset"]["remote"] = False
    assert sk.load_config(config).to_dict()["dataset"]["remote"] is False


def test_storage_options_are_in_to_dict_and_are_never_printed(tmp_path, command):
    options = {"headers": {"Authorization": SECRET}}
    path = written(tmp_path, files(storage_options=options, attempts=1))
    config = sk.load_config(path)
    assert SECRET not in repr(config) + repr(config.dataset)
    assert config.to_dict()["dataset"]["remote"]["storage_options"] == options  # it is the user's own
    for arguments in (("plan", path), ("plan", path, "--json"), ("check", path)):
        _, output, errors = command(*arguments)
        assert output + errors
        assert SECRET not in output + errors


def test_the_schema_knows_the_section():
    schema = sk.Config.json_schema()
    for remote in ({"max_cache_bytes": 10**9, "storage_options": {"key": "a"}}, None, False):
        assert valid({**files(), "dataset": {**files()["dataset"], "remote": remote}}, schema)
    for remote in ({"cach": "/a"}, {"timeout": "long"}, {"attempts": 1.5}, {"storage_options": 3}, True):
        assert not valid({**files(), "dataset": {**files()["dataset"], "remote": remote}}, schema)


def test_paths_in_a_config_at_a_url_start_from_its_folder(remote_run):
    config = sk.load_config(f"{remote_run.url}/config.yaml?{SECRET}")
    assert config.dataset.files == tuple(f"{remote_run.url}/data/{number}.npz" for number in range(3))
    batches = config.make_loader(world=sk.World(), batch_size=3)
    assert [batch["id"].tolist() for batch in batches] == [[7, 2, 9]]
    config.dataset.close()
    again = sk.load_config(config.to_dict())  # a mapping, whose paths start from the working directory
    assert again == config


def test_commands_take_the_url_of_a_config(remote_run, printed):
    url = f"{remote_run.url}/config.yaml"
    for name in ("validate", "plan", "check"):
        output = printed(name, f"{url}?{SECRET}")
        assert SECRET not in output
        assert name == "plan" or output.startswith(f"{url}: ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.yaml", "config: there is no such file, or it may not be read, got 'http"),
        ("data/0.npz", "config: is not UTF-8 text, got 'http"),
        ("wrong.yaml", r"sampler\.kind: is not a kind of sampler, got 'rondom'; did you mean random\?"),
        ("array.yaml", r"sampler\.indices: there is no such file"),
    ],
)
def test_a_mistake_in_a_config_at_a_url_is_named_and_the_query_is_not(remote_run, tmp_path, name, message):
    (tmp_path / "web" / "wrong.yaml").write_text("sampler: {kind: rondom}")
    (tmp_path / "web" / "array.yaml").write_text("sampler: {kind: subset, indices: none.npy}")
    with pytest.raises(sk.ConfigError, match=message) as caught:
        sk.load_config(f"{remote_run.url}/{name}?{SECRET}")
    assert SECRET not in "".join(traceback.format_exception(caught.value))
