"""Datasets that a config names: files with a reader, tar shards, trees of them, and those at URLs."""

import json
import os
import traceback

import numpy as np
import pytest
import torch
import yaml
from torch.utils.data import ConcatDataset

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.writer import TarWriter
from samplerkit.storage.tokens.dataset import TokenDataset
from tests.config.answers import valid
from tests.storage.files.folders import write_npz
from tests.storage.remote.server import served
from tests.storage.tar.remote_shards import NUMBERS, write_shards

SIZES = [5, 3, 6]


@pytest.fixture
def folder(tmp_path):
    """A folder with a config's data, which is not the working directory."""
    write_npz(tmp_path / "data", SIZES, "{}.npz")
    np.save(tmp_path / "data" / "tokens.npy", np.arange(14 * 8 + 1, dtype=np.uint8))
    with TarWriter(str(tmp_path / "data" / "part-%03d.tar"), samples_per_shard=5) as writer:
        for number in range(14):
            writer.write({"__key__": f"{number:03}", "cls": number, "txt": f"number {number}"})
    return tmp_path


def config_of(folder, dataset, rest="sampler: {kind: random, shuffle: files, seed: 2}\n"):
    (folder / "config.yaml").write_text(f"dataset: {dataset}\n{rest}loader: {{batch_size: 4}}\n")
    return sk.load_config(folder / "config.yaml")


def first_of_tokens(batch):
    return batch[:, 0] // 8


FILES = "{kind: files, files: 'data/*.npz', reader: npz}"
TOKENS = "{kind: tokens, files: 'data/*.npy', seq_len: 8, phase: false}"
CORPORA = (
    "'data/*.npy'",
    "{web: [data/tokens.npy]}",
    "{web: data/tokens.npy}",
    "{all: {web: data/tokens.npy}}",
)
TAR = "{kind: tar, urls: 'data/part-{000..002}.tar', decode: true, to_tuple: [cls, txt]}"


@pytest.mark.parametrize(
    ("dataset", "kind", "ids"),
    [
        (FILES, FileDataset, lambda batch: batch["id"]),
        (FILES.replace("npz}", "npz, lengths: [5, 3, 6]}"), FileDataset, lambda batch: batch["id"]),
        (
            FILES.replace("'data/*.npz'", "[data/0.npz, data/1.npz, data/2.npz]"),
            FileDataset,
            lambda batch: batch["id"],
        ),
        (TAR, TarDataset, lambda batch: batch[0]),
        *((TOKENS.replace("'data/*.npy'", files), TokenDataset, first_of_tokens) for files in CORPORA),
        (
            TOKENS.replace("phase: false", "phase: false, outputs: [tokens, labels]"),
            TokenDataset,
            lambda batch: first_of_tokens(batch["tokens"]),
        ),
    ],
)
def test_a_config_reads_its_dataset_from_its_own_folder_and_round_trips(
    folder, dataset, kind, ids, monkeypatch
):
    config = config_of(folder, dataset)
    assert isinstance(config.dataset, kind)
    expected = list(config.sampler.order(config.dataset))
    assert sorted(expected) == list(range(14))
    for loader in (config.make_loader(world=sk.World()), config.dataloader(world=sk.World())):
        assert torch.cat([ids(batch) for batch in loader]).tolist() == expected
    monkeypatch.chdir(folder.parent)
    again = sk.load_config(config.to_dict())
    assert again == config
    assert hash(again) == hash(config)
    assert len(again.dataset) == 14


def test_the_lengths_of_files_may_be_in_a_file_next_to_the_config(folder):
    config = config_of(folder, FILES)
    config.dataset.save_lengths(folder / "lengths.json")
    os.remove(folder / "data" / "1.npz")  # noqa: PTH107  # so it would be an error to count it
    with_lengths = config_of(
        folder,
        "{kind: files, files: [data/0.npz, data/1.npz, data/2.npz], reader: npz, lengths: lengths.json}",
    )
    assert with_lengths.dataset.layout.sizes.tolist() == SIZES


@pytest.mark.parametrize(
    "section",
    [
        "{kind: tar, urls: 'data/part-{000..002}.tar', lengths: [5, 5, 4], decode: true, on_error: skip}",
        "{kind: layout, sizes: [5, 5, 4], names: [cats, dogs, birds]}",
    ],
    ids=["its own dataset, mapped", "a layout, and a user's dataset"],
)
def test_samples_that_a_dataset_skips_are_counted_when_the_config_gives_its_files(folder, section):
    (folder / "data" / "part-001.tar").unlink()
    config = config_of(folder, section, rest="sampler: {kind: random, seed: 2}\n")
    paths = f"{folder}/data/part-{{000..002}}.tar"
    shards = (
        config.dataset
        if isinstance(config.dataset, TarDataset)
        else TarDataset(paths, lengths=[5, 5, 4], on_error="skip").decode()
    )
    loader = config.make_loader(shards.map(lambda sample: sample["cls"]), world=sk.World())
    read = [label for batch in loader for label in batch.tolist()]
    assert sorted(read) == [*range(5), *range(10, 14)]
    assert sorted(sample.id for sample in loader.skipped) == [*range(5, 10)]
    assert loader.figures()["skipped"] == 5


SAMPLER = {"kind": "random", "shuffle": "files", "seed": 3}


def of(dataset, **more):
    return {"dataset": dataset, "sampler": SAMPLER, **more}


def tree(**parts):
    return {"kind": "tree", "parts": parts}


TREE = tree(web={"kind": "layout", "sizes": [5, 7]}, more=tree(code={"kind": "size", "size": 3}))


def test_a_tree_of_layouts_is_a_layout():
    config = sk.load_config(of(TREE))
    assert config.dataset == sk.Layout.tree({"web": sk.Layout([5, 7]), "more": sk.Layout.tree({"code": 3})})
    assert sk.load_config(config.to_dict()) == config
    assert config.to_dict()["dataset"] == TREE
    schema = sk.Config.json_schema()
    assert valid(of(TREE), schema)
    assert not valid(of(tree()), schema)
    assert not valid(of(tree(a=None)), schema)


@pytest.fixture(name="working_folder")
def fixture_working_folder(tmp_path, monkeypatch):
    """Real shards and files, in folders below the working directory."""
    monkeypatch.chdir(tmp_path)
    write_shards(tmp_path / "tar")
    write_npz(tmp_path / "npz", [4, 3])
    return tmp_path


@pytest.fixture(name="tree_config")
def fixture_tree_config(working_folder):
    """A config of both, with paths that start from its folder."""
    tar = {
        "kind": "tar",
        "urls": "tar/train-{00..07}.tar",
        "decode": True,
        "to_tuple": ["cls"],
        "cache": "cache",
    }
    files = {"kind": "files", "files": "npz/*.npz", "reader": "npz"}
    tree_config = of(tree(web=tar, more=tree(books=files)), loader={"batch_size": 8})
    (working_folder / "run.yaml").write_text(json.dumps(tree_config))  # JSON is YAML
    return working_folder / "run.yaml"


def test_a_tree_of_real_datasets_is_read_in_the_order_of_its_config(tree_config):
    config = sk.load_config(str(tree_config))
    assert isinstance(config.dataset, sk.TreeDataset)
    assert isinstance(config.dataset.parts["more"].parts["books"], sk.FileDataset)
    with config.make_loader(world=sk.World(1, 0), collate_fn=list) as loader:
        ids = [id for step in range(len(loader)) for id in loader.ids(step).tolist()]
        samples = [sample for batch in loader for sample in batch]
    numbers = [sample[0] if isinstance(sample, tuple) else int(sample["id"]) for sample in samples]
    assert numbers == [id if id < len(NUMBERS) else id - len(NUMBERS) for id in ids]
    assert sorted(ids) == list(range(len(NUMBERS) + 7))
    again = sk.load_config(config.to_dict())
    assert again == config
    assert again.dataset.layout == config.dataset.layout


def test_a_users_dataset_gets_the_parts_of_the_config():
    config = sk.load_config(of(TREE, loader={"batch_size": 5}))
    with config.make_loader(np.arange(15), world=sk.World(1, 0)) as loader:
        assert sorted(np.concatenate(list(loader)).tolist()) == list(range(15))
        assert loader.dataset.layout == config.dataset
    parts = {"web": ConcatDataset([range(5), range(7)]), "more": sk.TreeDataset({"code": range(3)})}
    assert config.make_loader(sk.TreeDataset(parts)).dataset.layout == config.dataset
    for other in ({"web": parts["web"], "less": parts["more"]}, {"web": range(12), "more": range(3)}):
        with pytest.raises(sk.ConfigError, match="but the dataset has other"):
            config.make_loader(sk.TreeDataset(other))
    flat = sk.load_config(of({"kind": "layout", "sizes": [5, 7, 3]}))
    assert flat.make_loader(sk.TreeDataset(parts)).dataset.layout == config.dataset


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
