"""Files with a reader as a dataset: its samples, and its lengths, which are counted once."""

import pickle
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from tests.storage.checks import assert_refused
from tests.storage.crowd import run_in_threads
from tests.storage.files.folders import Watching, plain, received, samples_of, write_npz

MODES = {
    "false": {},
    "global": {},
    "files": {},
    "infile": {},
    "partial": {"partial_size": 5},
    "partial, two pools": {"partial_size": 3, "pools": 2},
    "adaptive": {"adaptive_threshold": 10, "partial_size": 7},
}


def sampler_of(mode, **arguments):
    return sk.DistributedSampler(shuffle=mode.partition(",")[0], seed=7, **MODES[mode], **arguments)


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_npz(folder, SIZES)
    return folder


SIZES = [4, 0, 7, 1, 12, 3]
SAMPLES = samples_of(SIZES)


def test_changing_a_sample_in_place_changes_no_other_one(folder):
    with FileDataset(str(folder / "*.npz"), "npz") as dataset:
        dataset[5]["pair"][:] = 99
        dataset.__getitems__([5])[0]["pair"][:] = 99
        assert plain(dataset[5]) == SAMPLES[5]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=7).filter(any),
    mode=st.sampled_from(sorted(MODES)),
    batch_size=st.integers(1, 6),
    shards=st.integers(1, 3),
    limits=st.fixed_dictionaries(
        {
            "max_files": st.integers(1, 4),
            "read_ahead": st.integers(0, 3),
            "threads": st.integers(1, 3),
            "max_bytes": st.none() | st.just(500),
        }
    ),
)
def test_any_layout_mode_and_limits_give_the_samples_of_the_order(
    tmp_path_factory, sizes, mode, batch_size, shards, limits
):
    paths = write_npz(tmp_path_factory.mktemp("any"), sizes)
    samples, sampler, world = samples_of(sizes), sampler_of(mode), sk.World(shards, shards - 1)
    with FileDataset(paths, "npz", sizes, **limits) as dataset:
        loader = sk.Loader(dataset, sampler, batch_size=batch_size, world=world, collate_fn=list)
        for epoch in range(2):
            read = [plain(sample) for batch in loader for sample in batch]
            assert read == [samples[id] for id in sampler.order(sk.Layout(sizes), epoch, world=world)]
        assert dataset.stats.peak_files <= limits["max_files"]
        # A file of unknown size may be over it for the moment in which something else is dropped.
        assert limits["max_bytes"] is None or dataset.stats.peak_bytes <= 500 + 9 * 8 * 4


def test_columns_hold_the_values_of_the_samples(folder):
    torch_data = pytest.importorskip("torch.utils.data")
    sampler = sampler_of("global")
    with FileDataset(str(folder / "*.npz"), "npz", as_columns=True) as dataset:
        loader = sk.Loader(dataset, sampler, batch_size=5, collate_fn=torch_data.default_convert)
        read = sum(received(loader), [])
        assert plain(dataset[5]) == SAMPLES[5]
        assert dataset.__getitems__([]) == {}
    assert read == [SAMPLES[id] for id in sampler.order(sk.Layout(SIZES))]


def test_columns_of_texts_are_as_wide_as_the_longest():
    texts = {"a": np.array(["x", "yy"]), "b": ["a longer one", "z"], "c": np.array(["ü"], dtype=object)}
    with FileDataset(["a", "b"], lambda path: {"text": texts[path]}, as_columns=True) as dataset:
        assert dataset.__getitems__([1, 2, 0])["text"].tolist() == ["yy", "a longer one", "x"]
    with FileDataset(["c", "c2"], lambda path: {"text": texts["c"]}, as_columns=True) as dataset:
        assert dataset.__getitems__([1, 0])["text"].tolist() == ["ü", "ü"]


MISMATCHES = {
    "other columns": ({"x": [1]}, {"y": [1]}),
    "another shape": ({"x": [[1, 2]]}, {"x": [[1, 2, 3]]}),
    "another type": ({"x": [1]}, {"x": ["1"]}),
    "no columns": ({"x": [1]}, [1]),
    "another unit of time": ({"x": np.array(["3000-01-01"], "M8[D]")}, {"x": np.zeros(1, "M8[ns]")}),
    "records of other fields": ({"x": np.zeros(1, "i4,i4")}, {"x": np.zeros(1, "i4,i4,i4")}),
    "no array": ({"x": [[1], [1, 2]]}, {"x": [[1]]}),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_files_with_different_columns_are_an_error_that_names_the_file(case):
    contents = dict(zip(("a", "b"), MISMATCHES[case], strict=True))
    with (
        FileDataset(["a", "b"], contents.__getitem__, as_columns=True, read_ahead=0) as dataset,
        pytest.raises(sk.DatasetError, match=r"^(a|b)\b"),
    ):
        dataset.__getitems__([0, 1])


def test_a_pickled_dataset_leaves_out_its_cache(folder):
    with FileDataset(str(folder / "*.npz"), "npz", progress=lambda *_: None) as dataset:
        assert len(dataset) == 27
        before = len(pickle.dumps(dataset))
        assert plain(dataset[5]) == SAMPLES[5]
        travelled = pickle.loads(pickle.dumps(dataset))  # noqa: S301  # made one line above
        assert len(pickle.dumps(dataset)) < before + 1000
        assert travelled.layout == dataset.layout
        assert travelled.stats == type(travelled.stats)()
        assert plain(travelled[5]) == SAMPLES[5]
        travelled.close()


def test_files_and_ids_of_another_kind_are_refused(folder):
    with pytest.raises(sk.ArgumentTypeError, match="files: must be a path, a pattern or a list of these"):
        FileDataset(np.array("a.npz"), "npz")
    with pytest.raises(sk.ArgumentValueError, match="files: cannot be a path"):
        FileDataset("a\0.npz", "npz")
    with FileDataset(str(folder / "*.npz"), "npz") as dataset:
        for ids in (torch.ones(1, requires_grad=True), torch.ones(1, dtype=torch.bfloat16)):
            with pytest.raises(sk.ArgumentTypeError, match="ids: must be a flat list of integers"):
                dataset.__getitems__(ids)
    with pytest.raises(sk.DatasetError, match=r"cannot be read \(File name too long\)"):
        FileDataset("a.npz", "npz", lengths="a" * 300)


def test_patterns_in_a_list_are_replaced_by_their_files_in_place(tmp_path):
    for name in ("a1", "a2", "b1", "[b]1", "z"):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros(1))
    braces = FileDataset(f"{tmp_path}/{{z,a{{1,2}},b?}}.npz", "npz")
    assert braces.layout.names == ("z.npz", "a1.npz", "a2.npz", "b1.npz")
    paths = [tmp_path / "z.npz", f"{tmp_path}/a?.npz", tmp_path / "[b]1.npz"]
    assert FileDataset(paths, "npz").layout.names == ("z.npz", "a1.npz", "a2.npz", "[b]1.npz")
    with pytest.raises(sk.DatasetError, match=r"files: no file matches, got '.*/c\*\.npz'"):
        FileDataset([*paths, f"{tmp_path}/c*.npz"], "npz")
    with pytest.raises(sk.ArgumentValueError, match=r"must not name a file twice, got 'z.npz'$"):
        FileDataset([*paths, f"{tmp_path}/z*.npz"], "npz")


def test_urls_in_a_list_are_patterns_by_stars_and_braces_alone():
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: no other URLs here")
    fsspec.filesystem("memory").pipe({f"/lists/{name}.npz": b"" for name in ("a1", "a2", "b[1]")})
    urls = ["memory://lists/b[1].npz", "memory://lists/a*.npz", "https://host/{0..1}.npz?key=*"]
    names = ["b[1].npz", "a1.npz", "a2.npz"]
    web = [f"https://host/{number}.npz?key=*" for number in range(2)]
    assert FileDataset(urls, "npz").files == (*(f"memory://lists/{name}" for name in names), *web)
    assert FileDataset(urls, "npz", remote=False).files == tuple(urls)


@pytest.mark.parametrize("scheme", ["file://", "FILE://", "local://", "file://localhost"])
def test_a_file_url_is_a_local_path(tmp_path, scheme):
    write_npz(tmp_path / "a b", [2, 3])
    address = f"{scheme}{tmp_path}/a%20b"
    for files in (f"{address}/*.npz", [f"{address}/000.npz", f"{address}/001.npz"]):
        with FileDataset(files, "npz") as dataset:
            assert dataset.layout == sk.Layout([2, 3], ["000.npz", "001.npz"])
    with pytest.raises(sk.DatasetError, match=r"other/.*/000\.npz"):  # not the file of this host
        len(FileDataset(f"file://other{tmp_path}/a%20b/000.npz", "npz"))


COUNTED = [4, 0, 7, 1]
NAMES = ["000.npz", "001.npz", "002.npz", "003.npz"]


@pytest.fixture(name="paths")
def fixture_paths(tmp_path):
    return [str(path) for path in write_npz(tmp_path / "data", COUNTED)]


class Counting(Watching):
    """A reader that can count without reading."""

    def __init__(self, seconds=0.0):
        super().__init__(seconds)
        self.counted: list[str] = []

    def count(self, path):
        time.sleep(self.seconds)
        self.counted.append(path)
        with np.load(path) as arrays:
            return len(arrays["id"])


GIVEN = {
    "a list": lambda paths: COUNTED,
    "an array": lambda paths: np.array(COUNTED),
    "a dict of names": lambda paths: dict(zip(NAMES, COUNTED, strict=True)),
    "a dict in another order": lambda paths: dict(reversed(list(zip(paths, COUNTED, strict=True)))),
    "a dict of both": lambda paths: {paths[0]: 4, NAMES[1]: 0, NAMES[2]: 7, paths[3]: 1},
}


@pytest.mark.parametrize("form", GIVEN)
def test_given_lengths_open_no_file_at_the_start(paths, form):
    reader = Counting()
    with FileDataset(paths, reader, GIVEN[form](paths)) as dataset:
        assert len(dataset) == 12
        assert dataset.layout == sk.Layout(COUNTED, NAMES)
        assert reader.counted == reader.read == []
        assert plain(dataset[11]) == samples_of(COUNTED)[11]
        assert reader.read == ["003.npz"]


def test_lengths_are_counted_at_first_need_and_once(paths):
    reader = Counting()
    with FileDataset(paths, reader) as dataset:
        assert reader.counted == []
        assert repr(dataset) == "FileDataset(4 files, not opened)"
        assert [len(dataset) for _ in range(3)] == [12, 12, 12]
        assert dataset.layout.sizes.tolist() == COUNTED
        assert sorted(reader.counted) == sorted(paths)
        assert reader.read == []
        assert dataset.stats.files_counted == 4
        assert repr(dataset) == "FileDataset(4 files, 12 samples)"


def test_several_threads_that_need_lengths_count_once(paths):
    reader = Counting(seconds=0.05)
    lengths = []
    with FileDataset(paths, reader) as dataset:
        run_in_threads(*[lambda: lengths.append(len(dataset))] * 5)
    assert lengths == [12] * 5
    assert len(reader.counted) == 4


def test_files_are_counted_several_at_a_time(tmp_path):
    paths = write_npz(tmp_path, [2] * 32)
    together = threading.Barrier(8)

    class Together(Watching):
        def count(self, path):
            together.wait(30)  # broken unless eight are here at once
            return 2

    assert len(FileDataset(paths, Together())) == 64


def test_a_reader_that_cannot_count_keeps_to_the_limit_of_memory(tmp_path):
    paths = write_npz(tmp_path, [2] * 12)
    reader = Watching(seconds=0.02)
    assert len(FileDataset(paths, reader, max_files=3)) == 24
    assert reader.at_a_time <= 3
    assert len(reader.read) == 12


@pytest.mark.parametrize("wrong", ["3", 1.5, None, True, -1, [4], np.array([4, 4])], ids=str)
def test_a_count_that_is_not_a_number_is_an_error_that_names_the_file(paths, wrong):
    class Wrong(Watching):
        def count(self, path):
            return wrong

    assert_refused(FileDataset(paths, Wrong()), r"\.npz: the reader must return a number of samples")


def test_saved_lengths_are_loaded_by_another_dataset_also_when_the_folder_was_moved(paths, tmp_path):
    FileDataset(paths, "npz").save_lengths(tmp_path / "lengths.json")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["lengths.json"]
    (tmp_path / "data").rename(tmp_path / "moved")
    moved = [path.replace("data", "moved") for path in paths]
    reader = Counting()
    for where in (str(tmp_path / "lengths.json"), tmp_path / "lengths.json"):
        assert FileDataset(moved, reader, where).layout == sk.Layout(COUNTED, NAMES)
    assert reader.counted == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1, 2]",
        "3",
        '{"lengths": [1]}',
        '{"lengths": null}',
        "[" * 100_000,
        f'{{"a": {"9" * 5000}}}',
    ],
    ids=range(8),
)
def test_a_damaged_file_of_lengths_is_a_typed_error(paths, tmp_path, text):
    (tmp_path / "lengths.json").write_text(text, encoding="utf-8")
    with pytest.raises(sk.DatasetError, match=r"lengths\.json"):
        FileDataset(paths, "npz", tmp_path / "lengths.json")


@pytest.mark.parametrize("wrong", [6, 8])
def test_a_wrong_length_names_the_file_and_both_lengths(paths, wrong):
    with FileDataset(paths, "npz", [4, 0, wrong, 1]) as dataset:
        assert plain(dataset[0]) == samples_of(COUNTED)[0]
        assert_refused(dataset, rf"002\.npz: has 7 samples, but {wrong} were given or counted", 5)
