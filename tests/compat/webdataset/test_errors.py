"""Errors in the loop: a user's own unchanged, and ours of the classes that webdataset raises."""

from __future__ import annotations

import pickle
import tarfile

import pytest
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.compat import webdataset as wds
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
    for handler, raised in ((None, own), (fail, own), (lambda _: fail(OSError("other")), None)):
        with pytest.raises((CodedError, OSError)) as caught:
            list(dataset.map(lambda _: fail(own), handler=handler))
        assert raised is None or caught.value is raised
        assert len(caught.value.__notes__) == 1, "an error that is raised again has one note"
        assert "sample '00000': map failed" in caught.value.__notes__[0]


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
