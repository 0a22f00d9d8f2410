"""webdataset's names and arguments for writing shards."""

import io

import pytest
import webdataset

import samplerkit as sk
from samplerkit.compat import webdataset as wds
from tests.storage.tar.shards import read_by_webdataset


def read(path):
    return [
        {name: value for name, value in sample.items() if name != "__url__"} for sample in sk.TarDataset(path)
    ]


def written(sink, count=7):
    with sink:
        for number in range(count):
            sink.write(
                {"__key__": f"{number:03}", "txt": str(number), "_note": "three", "__source__": "here"}
            )
    return sink


def test_shards_begin_at_a_number_and_post_is_called_for_each_complete_one(tmp_path):
    posted = []

    def post(path):
        posted.append((path, len(sk.TarDataset(path))))

    sink = written(wds.ShardWriter(f"{tmp_path}/%04d.tar", 3, 3e9, post, 5, verbose=0))
    assert posted == [(f"{tmp_path}/000{number}.tar", count) for number, count in ((5, 3), (6, 3), (7, 1))]
    assert (sink.paths, sink.num_samples) == ([path for path, _ in posted], 7)
    samples = [sample for path in sink.paths for sample in read(path)]
    assert samples == [{"__key__": f"{number:03}", "txt": str(number).encode()} for number in range(7)]


def test_webdataset_reads_what_is_written_and_both_leave_out_the_same_fields(tmp_path):
    options = {
        "maxcount": 4,
        "start_shard": 2,
        "verbose": 0,
        "mtime": 0,
        "user": "a",
        "group": "b",
        "mode": 0o600,
    }
    for module, folder in ((wds, tmp_path / "ours"), (webdataset, tmp_path / "webdatasets")):
        folder.mkdir()
        written(module.ShardWriter(f"{folder}/%02d.tar", **options))
    ours, webdatasets = (sorted((tmp_path / name).glob("*.tar")) for name in ("ours", "webdatasets"))
    assert [path.name for path in ours] == [path.name for path in webdatasets] == ["02.tar", "03.tar"]
    assert [read(path) for path in ours] == [read(path) for path in webdatasets]
    samples = read_by_webdataset(ours)
    assert [sample["txt"] for sample in samples] == [str(number).encode() for number in range(7)]


def test_infinity_is_no_limit_of_bytes(tmp_path):
    sink = written(wds.ShardWriter(f"{tmp_path}/%d.tar", maxsize=float("inf")))
    assert (len(sink.paths), sink.num_samples) == (1, 7)


ENCODERS = {
    "unchanged bytes": (False, {"txt": b"a"}, b"a"),
    "ours": (True, {"txt": "a"}, b"a"),
    "a function of the sample": (
        lambda sample: {**sample, "txt": sample["txt"].upper().encode()},
        {"txt": "a"},
        b"A",
    ),
    "functions by extension": ({"txt": lambda text: text[::-1]}, {"txt": "ab", "cls": 3}, b"ba"),
}


@pytest.mark.parametrize(("encoder", "fields", "expected"), ENCODERS.values(), ids=ENCODERS.keys())
def test_encoders_have_the_forms_of_webdatasets(tmp_path, encoder, fields, expected):
    with wds.TarWriter(f"{tmp_path}/one.tar", encoder=encoder) as sink:
        sink.write({"__key__": "a", **fields})
    assert read(f"{tmp_path}/one.tar")[0]["txt"] == expected


@pytest.mark.parametrize("make", [wds.TarWriter, wds.ShardWriter])
@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"compress": True}, sk.NotSupportedError, r"compress: is not supported, got True; .*txt\.gz"),
        ({"keep_meta": True}, sk.NotSupportedError, "keep_meta: is not supported, got True; give"),
        ({"encoder": 3}, sk.ArgumentTypeError, "encoder: must be a bool, a function"),
        ({"compres": True}, TypeError, "compres"),
        ({"compress": False, "keep_meta": False}, None, ""),
    ],
)
def test_unsupported_arguments_are_refused_by_name(tmp_path, make, options, kind, text):
    path = f"{tmp_path}/%d.tar" if make is wds.ShardWriter else f"{tmp_path}/a.tar"
    if kind is None:
        assert written(make(path, **options)).num_samples == 7
        return
    with pytest.raises(kind, match=text):
        make(path, **options)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"opener": open}, sk.NotSupportedError, "opener: is not supported, got .*; .*post="),
        ({"post": 3}, sk.ArgumentTypeError, "post: must be a function"),
        ({"maxsize": float("nan")}, sk.ArgumentRangeError, "maxsize: must not be NaN"),
        ({"maxsize": "3"}, sk.ArgumentTypeError, "maxsize: must be a number of bytes"),
        ({"start_shard": -1}, sk.ArgumentRangeError, "start_shard: must not be negative"),
        ({"maxcount": 0}, sk.ArgumentRangeError, "samples_per_shard"),
    ],
)
def test_invalid_arguments_of_shards_are_refused(tmp_path, options, kind, text):
    with pytest.raises(kind, match=text):
        wds.ShardWriter(f"{tmp_path}/%d.tar", **options)


@pytest.mark.parametrize("place", ["pipe:cat > x.tar", "a.tgz", "a.tar.gz"])
def test_one_tar_must_be_the_path_of_a_plain_tar(place):
    with pytest.raises((sk.NotSupportedError, sk.ArgumentValueError), match=r"is a command|must end in"):
        wds.TarWriter(place)
    with pytest.raises(sk.ArgumentTypeError, match="must be a path"):
        wds.TarWriter(io.BytesIO())


def test_values_that_are_not_bytes_are_refused_without_an_encoder(tmp_path):
    for encoder in (False, dict):
        with (
            wds.TarWriter(f"{tmp_path}/{encoder}.tar", encoder=encoder) as sink,
            pytest.raises(ValueError, match=r"txt: is not bytes"),
        ):
            sink.write({"__key__": "a", "txt": "a"})
    with pytest.raises(TypeError, match="must be a dict"), wds.TarWriter(f"{tmp_path}/b.tar") as sink:
        sink.write([1])
