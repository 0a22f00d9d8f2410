"""Files of tokens that are cut, grow or are missing, and wrong indexes: errors with path and byte."""

import os
import struct

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.testing import DatasetContract
from tests.storage.checks import assert_refused
from tests.storage.tokens.test_reading import write_pair

DOCUMENTS = [np.arange(begin, begin + 40) for begin in range(0, 400, 40)]


def pair(folder, name="a"):
    """Ten documents of 40 tokens of two bytes: 800 bytes of tokens, 234 of an index."""
    return write_pair(folder / name, DOCUMENTS)


class TestPairs(DatasetContract):
    """Two of Megatron's pairs: the `.bin` is cut and deleted, the index is wrong."""

    def write(self, folder):
        for name in ("a", "b"):
            write_pair(f"{folder}/{name}", DOCUMENTS)
        tokens = np.arange(400)
        return [[tokens[begin : begin + 31] for begin in range(0, 390, 30)]] * 2

    def make(self, folder):
        return sk.TokenDataset([f"{folder}/a", f"{folder}/b"], 30, phase=False)

    def lies(self, whole):
        # Tokens have no checksum: on a first read, changed ones cannot be detected.
        return ()


class TestDocuments(TestPairs):
    """Whole documents: the index, which has their lengths, is cut, deleted and wrong."""

    def write(self, folder):
        super().write(folder)
        return [DOCUMENTS] * 2

    def make(self, folder):
        return super().make(folder).as_documents()

    def victim(self, folder):
        return next(path for path in super().victim(folder).parent.iterdir() if path.name == "b.idx")

    def lies(self, whole):
        return DatasetContract.lies(self, whole)


@pytest.mark.parametrize(
    ("change", "sizes"),
    [
        (lambda path: os.truncate(path, 500), ": it had 800 bytes, got '500 bytes'"),
        (lambda path: os.truncate(path, 900), ": it had 800 bytes, got '900 bytes'"),
        (lambda path: os.utime(path, (1, 1)), ""),
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, change, sizes, is_open):
    data = sk.TokenDataset([pair(tmp_path), pair(tmp_path, "b")], 30)
    assert len(data.__getitems__(range(26))) == 26
    if not is_open:
        data.close()
    change(tmp_path / "a.bin")
    for windows in ([5, 3], [20, 5], [5, 20]):
        with pytest.raises(DatasetError, match=f"a.bin: was changed while it was in use{sizes}"):
            data.__getitems__(windows)


def patch_file(path, at, layout, *values):
    """Writes numbers at a byte of a file."""
    data = bytearray(path.read_bytes())
    struct.pack_into(layout, data, at, *values)
    path.write_bytes(data)


POINTERS = 34 + 4 * 10

LIES = {
    "another magic": ((0, "<9s", b"MMIDIDX\0x"), "is not an index of Megatron"),
    "another version": ((9, "<Q", 2), "is not an index of Megatron"),
    "floats": ((17, "<B", 7), r"integers: its 242 bytes begin with b'MMIDIDX.*x07'"),
    "an unknown type": ((17, "<B", 9), "is not an index of Megatron"),
    "another type": ((17, "<B", 4), "has 800 bytes, but its index .*a.idx needs 880 bytes"),
    "more sequences": ((18, "<Q", 11), "has 242 bytes, but its header of 11 sequences needs 254"),
    "2^60 sequences": ((18, "<Q", 2**60), "has 242 bytes, but its header of"),
    "a last length": ((34 + 36, "<i", 39), "has 800 bytes, but its index .* needs 798"),
    "a negative length": ((34 + 36, "<i", -1), "has 800 bytes, but its index"),
    "a last pointer": ((POINTERS + 72, "<q", 722), "has 800 bytes, but its index .* needs 802 bytes"),
    "an odd pointer": ((POINTERS + 72, "<q", 721), "has 800 bytes, but its index .* needs 801 bytes"),
}


@pytest.mark.parametrize(("patch", "message"), LIES.values(), ids=LIES.keys())
def test_an_index_that_lies_is_an_error_when_it_is_opened(tmp_path, patch, message):
    patch_file(pair(tmp_path).with_suffix(".idx"), *patch)
    assert_refused(sk.TokenDataset(tmp_path / "a", 30), message)


INNER_LIES = {
    "a pointer": (POINTERS + 24, "<q", 242),
    "a first pointer": (POINTERS, "<q", 2),
    "a negative pointer": (POINTERS + 24, "<q", -2),
    "an odd pointer": (POINTERS + 24, "<q", 241),
    "a length": (34 + 12, "<i", 41),
    "a negative length": (34 + 12, "<i", -40),
    "a large length": (34 + 12, "<i", 2**31 - 1),
}


@pytest.mark.parametrize("patch", INNER_LIES.values(), ids=INNER_LIES.keys())
@pytest.mark.parametrize("use", ["borders", "spans", "documents", "split"])
def test_an_index_that_contradicts_itself_is_an_error_where_it_is_used(tmp_path, patch, use):
    patch_file(pair(tmp_path).with_suffix(".idx"), *patch)
    options = {"documents": "idx", "outputs": ("cu_seqlens",), "split": "30,70" if use == "split" else None}
    with pytest.raises(DatasetError, match=r"a\.idx: lists at byte \d+ a wrong start of sequence \d"):
        data = sk.TokenDataset(tmp_path / "a", 30, **options)
        if use == "spans":
            data.spans(2)
        elif use == "documents":
            _ = data.as_documents().lengths
        else:
            data.__getitems__(range(len(data)))


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("a.bin", None, r"dtype: must be given for raw tokens, got '.*a.bin'; for example dtype='uint16'"),
        ("odd.bin", "u2", "odd.bin: has 101 bytes: at byte 100 a token of uint16 is cut"),
        ("a", "int32", "a.bin: holds uint16, and not int32"),
        ("float.npy", None, r"float.npy: holds <f4 of shape \(5,\)"),
        ("big.npy", None, r"big.npy: holds >u2 of shape \(5,\)"),
        ("two.npy", None, r"two.npy: holds <u2 of shape \(5, 1\)"),
        ("text.npy", None, "text.npy: is not an npy file"),
        ("open.npy", None, "open.npy: is not an npy file"),
        ("cut.npy", None, r"cut.npy: has \d+ bytes, but its header needs \d+ bytes"),
        ("more.npy", None, r"more.npy: has \d+ bytes, but its header needs"),
        ("gone", None, "gone.bin: cannot be read .No such file"),
        ("half", None, "half.bin: cannot be read"),
        (["a", "wide.npy"], None, "wide.npy: holds int32, and not uint16; all files of a dataset"),
    ],
)
def test_a_file_that_holds_no_tokens_is_an_error_that_says_why(tmp_path, name, dtype, message):
    pair(tmp_path)
    np.save(tmp_path / "float.npy", np.zeros(5, np.float32))
    np.save(tmp_path / "big.npy", np.zeros(5, ">u2"))
    np.save(tmp_path / "two.npy", np.zeros((5, 1), np.uint16))
    np.save(tmp_path / "wide.npy", np.zeros(500, np.int32))
    whole = (tmp_path / "wide.npy").read_bytes()
    for file_name, content in {
        "odd.bin": bytes(101),
        "half.idx": b"",
        "text.npy": b"no tokens at all",
        "open.npy": whole.replace(b"}", b" ", 1),
        "cut.npy": whole[:-1],
        "more.npy": whole + b"x",
    }.items():
        (tmp_path / file_name).write_bytes(content)
    files = [tmp_path / each for each in name] if isinstance(name, list) else tmp_path / name
    with pytest.raises((DatasetError, ArgumentValueError), match=message):
        len(sk.TokenDataset(files, 4, dtype=dtype))


def test_arguments_that_do_not_fit_the_files_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(50, np.uint32))
    for name, options, kind, problem in (
        (
            "a",
            {"as_dtype": "int32"},
            ArgumentValueError,
            r"as_dtype: cannot hold .*a\.npy, which are uint32",
        ),
        ("a", {"documents": -1}, ArgumentValueError, "documents: marks the end of .*, but no uint32 token"),
        ("a", {"documents": "x"}, ArgumentValueError, "documents: must be a token, or idx, got 'x'"),
        ("a", {"documents": "idx"}, DatasetError, r"a\.npy: has no index of documents"),
        ("a\0", {}, ArgumentValueError, "files: cannot be a path"),
        ("a", {"dtype": {"names": ["x"]}}, ArgumentTypeError, "dtype: must be a type of numpy's"),
    ):
        with pytest.raises(kind, match=problem):
            len(sk.TokenDataset(f"{tmp_path}/{name}.npy", 4, **options))


@pytest.mark.parametrize("epochs", [[0.5, 1], ["a", "b"], [0]])
def test_epochs_that_are_no_integers_are_refused(tmp_path, epochs):
    np.save(tmp_path / "a.npy", np.zeros(50, np.uint32))
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=r"^epochs"):
        sk.TokenDataset(tmp_path / "a.npy", 4).__getitems__([0, 1], epochs)


@pytest.mark.parametrize(("token", "place"), [(50, 37), (-1, 0), (9000, 111), (50, 101)])
def test_a_token_beyond_the_vocabulary_is_an_error_that_names_its_byte(tmp_path, token, place):
    tokens = np.arange(120, dtype=np.int16) % 50
    tokens[place] = token
    tokens.tofile(tmp_path / "a.bin")
    message = rf"a\.bin: holds at byte {2 * place} a token that is not in \[0, 50\), .* got {token};"
    for given in (
        {"phase": False},
        {"seed": 3},
        {"phase": False, "split": "1,1", "part": "valid" if place >= 60 else "train"},
    ):
        data = sk.TokenDataset(tmp_path / "a.bin", 7, dtype="int16", vocab_size=50, **given)
        at = {id for id in range(len(data)) for *_, begin, n in data.spans(id) if begin <= place < begin + n}
        with pytest.raises(DatasetError, match=message):
            data.__getitems__([*at])
        data.__getitems__([id for id in range(len(data)) if id not in at])
    assert sk.TokenDataset(tmp_path / "a.bin", 7, dtype="int16", phase=False).__getitems__(range(17)).size


def test_a_read_that_was_cut_short_is_finished(tmp_path, monkeypatch):
    """The kernel cuts a read that a signal interrupts, or one of more than 2 GiB."""
    np.save(tmp_path / "a.npy", np.arange(400, dtype=np.int32))
    data = sk.TokenDataset(tmp_path / "a.npy", 30, seed=1)
    expected = data.__getitems__(range(13))
    preadv, pread, lengths = os.preadv, os.pread, []

    def short_preadv(descriptor, buffers, offset):
        view = memoryview(buffers[0]).cast("B")
        return preadv(descriptor, [view[: max(1, len(view) // 2)]], offset)

    def short_pread(descriptor, length, offset):
        lengths.append(length)
        return pread(descriptor, max(1, length // 2), offset)

    monkeypatch.setattr(os, "preadv", short_preadv)
    monkeypatch.setattr(os, "pread", short_pread)
    assert np.array_equal(data.__getitems__(range(13)), expected)
    assert len(lengths) > 26


def test_files_shorter_than_a_block_are_logged_or_refused(tmp_path, caplog):
    for name, tokens in (("long", 1000), ("short", 50), ("tiny", 5)):
        np.save(tmp_path / f"{name}.npy", np.zeros(tokens, np.uint16))

    def dataset_of(*names):
        return sk.TokenDataset([tmp_path / f"{name}.npy" for name in names], 64)

    assert dataset_of("long", "tiny").layout.sizes.tolist() == [15, 0]
    assert not caplog.records
    assert dataset_of("long", "short").layout.sizes.tolist() == [15, 0]
    assert "50 of 1050 tokens are in files shorter than a block" in caplog.text
    with pytest.raises(DatasetError, match="loses 55 of 55 tokens: 2 of its 2 files hold fewer than 64"):
        len(dataset_of("short", "tiny"))


def test_a_writer_leaves_both_files_or_none(tmp_path):
    with pytest.raises(RuntimeError, match="on purpose"), sk.TokenWriter(tmp_path / "a") as writer:
        writer.write([1, 2, 3])
        raise RuntimeError("on purpose")
    writer.close()  # what it wrote stays away
    assert list(tmp_path.iterdir()) == []
    prefix = tmp_path / "new" / "folder" / "a"
    with sk.TokenWriter(prefix) as writer:
        writer.write([1, 2, 3])
        writer.write(np.array([], dtype=np.int64))
    with pytest.raises(ArgumentValueError, match="prefix: exists already"):
        sk.TokenWriter(prefix)
    with pytest.raises(DatasetError, match="was closed; make a new writer"):
        writer.write([1])
    with pytest.raises(ArgumentValueError, match="prefix: must be local, got 's3://bucket/a'"):
        sk.TokenWriter("s3://key:secret@bucket/a")


@pytest.mark.parametrize(
    ("dtype", "token"), [("u1", 256), ("i1", -129), ("u2", 65_536), ("u2", -1), ("i4", 2**31)]
)
def test_a_writer_refuses_a_token_that_its_type_cannot_hold(tmp_path, dtype, token):
    with sk.TokenWriter(tmp_path / "a", dtype) as writer:
        writer.write([1])
        with pytest.raises(sk.ArgumentRangeError, match=f"document 1, got {token}"):
            writer.write([1, token])


def test_a_document_of_more_tokens_than_an_index_can_state_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("samplerkit.storage.tokens.writer._LONGEST", 2)
    with sk.TokenWriter(tmp_path / "a") as writer:
        writer.write([1, 2])
        with pytest.raises(sk.ArgumentRangeError, match="fewer than 2"):
            writer.write([1, 2, 3])


def test_a_writer_whose_folder_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DatasetError, match="cannot be written"):
        sk.TokenWriter(tmp_path / "file" / "a").write([1])
    with pytest.raises(DatasetError, match="File name too long"):
        sk.TokenWriter(tmp_path / ("a" * 300)).close()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_writer_is_refused_when_another_one_has_written_its_prefix(tmp_path):
    prefix = str(tmp_path / "corpus")
    first, second = (sk.TokenWriter(prefix, "uint16") for _ in range(2))
    first.write([1, 2, 3])
    second.write([4, 5, 6])
    second.close()
    with pytest.raises(DatasetError, match=r"corpus.bin: was written by another one meanwhile"):
        first.close()
    assert sk.TokenDataset(prefix, 3, documents="idx").as_documents()[0].tolist() == [4, 5, 6]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.bin", "corpus.idx"]


def test_a_prefix_given_together_with_its_index_is_a_duplicate(tmp_path):
    prefix = str(tmp_path / "corpus")
    write_pair(prefix, [[1, 2, 3]])
    with pytest.raises(ArgumentValueError, match=r"corpus\.bin"):
        sk.TokenDataset([prefix, f"{prefix}.idx"], 3)
