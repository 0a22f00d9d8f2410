"""What is raised in the loop: a user's own errors as they are, and ours as what webdataset raises."""

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
    """An error with more than a text, and a constructor of its own."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def code(sample):
    raise CodedError(7, sample["__key__"])


def test_the_error_is_the_very_one_and_a_handler_that_raises_has_the_last_word(tmp_path):
    own = CodedError(7, "no")

    def raises(given):
        raise given

    dataset = wds.WebDataset(write(tmp_path, 1, 2))
    for handler, raised in ((None, own), (raises, own), (lambda _: raises(OSError("mine")), None)):
        with pytest.raises((CodedError, OSError)) as caught:
            list(dataset.map(lambda _: raises(own), handler=handler))
        assert raised is None or caught.value is raised
        assert len(caught.value.__notes__) == 1, "an error that is raised again says it once"
        assert "sample '00000': map failed" in caught.value.__notes__[0]


@pytest.mark.parametrize(("function", "kind"), [(code, RuntimeError), (abs, TypeError)])
def test_an_error_of_a_worker_names_the_sample(tmp_path, function, kind):
    # torch makes it again of its message, and gives a RuntimeError where the constructor wants more.
    dataset = wds.WebDataset(write(tmp_path, 1, 2)).map(function)
    with pytest.raises(kind, match=r"many-000\.tar: sample '00000': map failed"):
        list(DataLoader(dataset, num_workers=1, collate_fn=as_list))


def test_an_error_that_only_the_worker_knows_does_not_leave_the_loop_waiting(tmp_path):
    class Local(Exception):  # noqa: N818
        """torch cannot send it."""

    def fails(_):
        raise Local("no")

    dataset = wds.WebDataset(write(tmp_path, 1, 2))
    with pytest.raises(sk.DatasetError, match="sample '00000': map failed: Local no"):
        list(DataLoader(dataset.map(fails), num_workers=1, timeout=60, collate_fn=as_list))
    with pytest.raises(Local):
        list(dataset.map(fails))


def test_a_stop_iteration_of_a_function_is_no_end_of_the_epoch(tmp_path):
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
def test_a_field_that_is_missing_is_what_webdataset_raises(tmp_path, step, kind):
    dataset = FIELDS[step](wds.WebDataset(write(tmp_path, 1, 2)))
    text = rf"^{tmp_path}/many-000\.tar: sample '00000': {step} failed: has no field missing; its fields are"
    with pytest.raises(kind, match=text) as caught:
        list(dataset)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (type(again), str(again), again.hint) == (wds.FieldError, str(caught.value), caught.value.hint)


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


def of_missing(folder, _):
    return wds.WebDataset(f"{folder}/no.tar")


def of_vanished(folder, _):
    dataset = wds.WebDataset(f"{folder}/many-000.tar")
    (folder / "many-000.tar").unlink()
    return dataset


def of_damaged(folder, _):
    path = folder / "many-000.tar"
    path.write_bytes(path.read_bytes()[:2000])
    (folder / "many-000.tar.skidx").unlink()
    return wds.WebDataset(path)


def of_remote(folder, url):
    return wds.WebDataset(f"{url}/no.tar?token=5f3a", remote={"cache": folder / "cache"})


def of_truncated_stream(folder, _):
    return wds.WebDataset(f"pipe:head -c 2000 {folder}/many-000.tar", allow_commands=True)


def of_failing_command(*_):
    return wds.WebDataset("pipe:false", allow_commands=True)


def of_nothing(folder, _):
    with sk.TarWriter(f"{folder}/one.tar") as writer:
        writer.write({"__key__": "a", "txt": "a"})
    return wds.WebDataset(sk.TarDataset(f"{folder}/one.tar").select(lambda key: False, by="key"))


SHARDS = [
    (of_missing, FileNotFoundError),
    (of_vanished, FileNotFoundError),
    (of_damaged, tarfile.ReadError),
    (of_remote, OSError),
    (of_truncated_stream, tarfile.ReadError),
    (of_failing_command, OSError),
    (of_nothing, ValueError),
]


@pytest.mark.parametrize(("make", "kind"), SHARDS)
def test_a_shard_that_cannot_be_read_is_what_webdataset_raises_when_it_is_read(tmp_path, make, kind):
    write(tmp_path, 1, 4)
    with served(tmp_path) as web:
        dataset = make(tmp_path, web.url)
        assert "WebDataset(" in repr(dataset)
        with pytest.raises(kind) as caught:
            list(dataset)
        dataset.close()
    assert isinstance(caught.value, sk.DatasetError)
    assert "5f3a" not in str(caught.value)  # the query of a URL
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
