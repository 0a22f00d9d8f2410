"""Errors in the loop, of the classes that webdataset raises; streams are read as strictly as files."""

import gzip
import io
import os
import pickle
import tarfile

import pytest
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.compat import webdataset as wds
from samplerkit.compat.webdataset.commands import samples_of
from tests.compat.webdataset.shards import as_list, write
from tests.storage.remote.server import served


class CodedError(Exception):
    """An error whose constructor has another signature."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def code(sample):
    raise CodedError(7, sample["__key__"])


def test_the_users_error_is_raised_unless_a_handler_raises_another(tmp_path):
    own = CodedError(7, "no")

    def fail(error):
        raise error

    dataset = wds.WebDataset(write(tmp_path, 1, 2))
    other = OSError("other")
    for handler, raised in ((None, own), (fail, own), (lambda _: fail(other), other)):
        with pytest.raises((CodedError, OSError)) as caught:
            list(dataset.map(lambda _: fail(own), handler=handler))
        assert caught.value is raised
        assert len(own.__notes__) == 1, "an error that is raised again has one note"
        assert "sample '00000': map failed" in own.__notes__[0]


@pytest.mark.parametrize(("function", "kind"), [(code, RuntimeError), (abs, TypeError)])
def test_an_error_of_a_worker_names_the_sample(tmp_path, function, kind):
    # torch makes the error again from its message, or a RuntimeError if the constructor needs more.
    dataset = wds.WebDataset(write(tmp_path, 1, 2)).map(function)
    with pytest.raises(kind, match=r"many-000\.tar: sample '00000': map failed"):
        list(DataLoader(dataset, num_workers=1, collate_fn=as_list))


def test_an_error_class_that_only_the_worker_knows_does_not_block_the_loop(tmp_path):
    class Local(Exception):  # noqa: N818
        """An error that torch cannot send."""

    def fails(_):
        raise Local("no")

    dataset = wds.WebDataset(write(tmp_path, 1, 2))
    with pytest.raises(sk.DatasetError, match="sample '00000': map failed: Local no"):
        list(DataLoader(dataset.map(fails), num_workers=1, timeout=60, collate_fn=as_list))
    with pytest.raises(Local):
        list(dataset.map(fails))


def test_a_stop_iteration_of_a_function_does_not_end_the_epoch(tmp_path):
    dataset = wds.WebDataset(write(tmp_path, 1, 2)).map(lambda sample: next(iter(())))
    with pytest.raises(sk.DatasetError, match="sample '00000': map failed: StopIteration"):
        list(dataset)


FIELDS = {
    "to_tuple": lambda dataset: dataset.to_tuple("txt", "missing"),
    "rename": lambda dataset: dataset.rename(image="missing"),
    "map_dict": lambda dataset: dataset.map_dict(missing=str),
}


@pytest.mark.parametrize(
    ("step", "kind"), [("to_tuple", ValueError), ("rename", KeyError), ("map_dict", wds.FieldError)]
)
def test_a_missing_field_raises_the_class_that_webdataset_raises(tmp_path, step, kind):
    dataset = FIELDS[step](wds.WebDataset(write(tmp_path, 1, 2)))
    text = rf"^{tmp_path}/many-000\.tar: sample '00000': {step} failed: has no field missing; its fields are"
    with pytest.raises(kind, match=text) as caught:
        list(dataset)
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (type(copied), str(copied), copied.hint) == (wds.FieldError, str(caught.value), caught.value.hint)


def test_a_decoder_that_fails_is_a_decoding_error(tmp_path):
    def fails(*_):
        raise ZeroDivisionError("no")

    urls = write(tmp_path, 1, 2)
    for handler in (None, wds.reraise_exception):
        dataset = wds.WebDataset(urls).decode(fails, handler=handler)
        with pytest.raises(
            wds.DecodingError, match=r"decode failed: field 'txt': cannot be decoded \(no\)"
        ) as caught:
            list(dataset)
        assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)


def missing(folder, _):
    return wds.WebDataset(f"{folder}/no.tar")


def vanished(folder, _):
    dataset = wds.WebDataset(f"{folder}/many-000.tar")
    (folder / "many-000.tar").unlink()
    return dataset


def damaged(folder, _):
    path = folder / "many-000.tar"
    path.write_bytes(path.read_bytes()[:2000])
    (folder / "many-000.tar.skidx").unlink()
    return wds.WebDataset(path)


def remote(folder, url):
    return wds.WebDataset(f"{url}/no.tar?token=5f3a", remote={"cache": folder / "cache"})


def truncated_stream(folder, _):
    return wds.WebDataset(f"pipe:head -c 2000 {folder}/many-000.tar", allow_commands=True)


def failing_command(*_):
    return wds.WebDataset("pipe:false", allow_commands=True)


def empty(folder, _):
    with sk.TarWriter(f"{folder}/one.tar") as writer:
        writer.write({"__key__": "a", "txt": "a"})
    return wds.WebDataset(sk.TarDataset(f"{folder}/one.tar").select(lambda key: False, by="key"))


SHARDS = [
    (missing, FileNotFoundError),
    (vanished, FileNotFoundError),
    (damaged, tarfile.ReadError),
    (remote, OSError),
    (truncated_stream, tarfile.ReadError),
    (failing_command, OSError),
    (empty, ValueError),
]


@pytest.mark.parametrize(("make", "kind"), SHARDS)
def test_an_unreadable_shard_raises_the_class_that_webdataset_raises(tmp_path, make, kind):
    write(tmp_path, 1, 4)
    with served(tmp_path) as web:
        dataset = make(tmp_path, web.url)
        assert "WebDataset(" in repr(dataset)
        with pytest.raises(kind) as caught:
            list(dataset)
        dataset.close()
    assert isinstance(caught.value, sk.DatasetError)
    assert "5f3a" not in str(caught.value)  # the query of a URL
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (type(copied), str(copied)) == (type(caught.value), str(caught.value))


def in_pieces(data, size=1000):
    return iter(data[start : start + size] for start in range(0, len(data), size))


def archive(*members, kind=tarfile.PAX_FORMAT):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=kind) as tar:
        for name, data, *type_ in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if type_:
                member.type, member.size, member.linkname = type_[0], 0, "x"
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_stream_yields_the_same_as_a_file(tmp_path, kind, is_compressed):
    long = "folder/" * 10 if kind == tarfile.USTAR_FORMAT else "folder_é/" * 30
    members = [
        ("README", b"not a sample"),
        ("__meta__/x.txt", b"neither"),
        ("folder/", b"", tarfile.DIRTYPE),
        *(
            (f"{long}{number}.{field}", f"{number}{field}".encode() * number)
            for number in range(5)
            for field in ("TXT", "seg.png")
        ),
        ("last.cls", b"7"),
    ]
    data = archive(*members, kind=kind)
    data = gzip.compress(data) if is_compressed else data
    path = tmp_path / ("a.tar.gz" if is_compressed else "a.tar")
    path.write_bytes(data)
    expected = list(sk.TarDataset(path, cache=tmp_path))
    assert len(expected) == 6
    for size in (1000, 1 << 20):
        assert list(samples_of(in_pieces(data, size), str(path))) == expected


FLAWS = {
    "a link": (archive(("a.txt", b"1"), ("b.txt", b"", tarfile.SYMTYPE)), "link at byte 1024"),
    "a name outside the folder": (archive(("../a.txt", b"1")), "unsafe name at byte 0"),
    "a key twice": (archive(("a.txt", b"1"), ("b.txt", b"1"), ("a.cls", b"1")), "duplicate key at byte 2048"),
    "a field twice": (archive(("a.txt", b"1"), ("a.TXT", b"1")), "duplicate field at byte 1024"),
    "a reserved field": (archive(("a.__key__", b"1")), "reserved field at byte 0"),
    "a damaged gzip": (gzip.compress(archive(("a.txt", b"1" * 9000)))[:-20] + bytes(20), "damaged gzip"),
    "half a gzip": (gzip.compress(archive(("a.txt", os.urandom(9000))))[:5000], "compressed data end early"),
    "bzip2": (b"BZh91AY&SY", "bzip2, which is not supported"),
}


@pytest.mark.parametrize(("data", "text"), FLAWS.values(), ids=FLAWS.keys())
def test_a_stream_is_read_as_strictly_as_a_file(data, text):
    with pytest.raises(sk.DatasetError, match=text):
        list(samples_of(in_pieces(data), "pipe:x"))


@pytest.mark.parametrize("size", [1 << 33, 1 << 80])
def test_a_false_size_in_a_header_takes_no_memory(size):
    member = tarfile.TarInfo("a.txt")
    member.size = size
    data = member.tobuf(tarfile.GNU_FORMAT) + b"few bytes"
    with pytest.raises(sk.DatasetError, match=r"truncated at byte 0: the archive ends in 'a\.txt'"):
        list(samples_of(in_pieces(data), "pipe:x"))


def test_a_truncated_stream_is_never_a_shorter_epoch():
    data = archive(*((f"{number}.txt", b"x" * 700) for number in range(4)))[: 4 * 1536 + 1024]
    assert len(list(samples_of(in_pieces(data), "pipe:x"))) == 4
    for end in {*range(0, len(data), 37), *range(0, len(data), 512)}:
        with pytest.raises(sk.DatasetError, match="truncated"):
            list(samples_of(in_pieces(data[:end]), "pipe:x"))
