"""Members of an archive that are no samples are errors with archive and byte, or counted and skipped."""

import bz2
import gzip
import io
import lzma
import subprocess
import tarfile

import pytest

import samplerkit as sk
from samplerkit.storage.catalogue.making import make_catalogue
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.format.headers import BLOCK
from tests.storage.checks import assert_refused
from tests.storage.tar.shards import jpeg_tiles, read_by_webdataset, write


def shard(path, members):
    """Writes members: (name, data) for a file, (name, type flag) or (name, type flag, link) for others."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, *content in members:
            member = tarfile.TarInfo(name)
            data = content[0] if isinstance(content[0], bytes) and len(content[0]) != 1 else b""
            if not data and content[0]:
                member.type = content[0]
                member.linkname = content[1] if len(content) > 1 else ""
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


GOOD = [("a.txt", b"first"), ("a.cls", b"00"), ("z.txt", b"last"), ("z.cls", b"11")]

FLAWS = {
    "a symbolic link": ([("m.txt", b"data"), ("m.cls", tarfile.SYMTYPE, "a.cls")], "link", 3),
    "a hard link": ([("m.txt", b"data"), ("m.cls", tarfile.LNKTYPE, "a.cls")], "link", 3),
    "a link without an extension": ([("latest", tarfile.SYMTYPE, "a.cls")], "link", 2),
    "a pipe": ([("m.txt", tarfile.FIFOTYPE)], "device", 2),
    "a character device": ([("m.txt", tarfile.CHRTYPE)], "device", 2),
    "a block device": ([("m.txt", tarfile.BLKTYPE)], "device", 2),
    "an absolute name": ([("/etc/m.txt", b"data")], "unsafe name", 2),
    "a name that leads out": ([("x/../../m.txt", b"data")], "unsafe name", 2),
    "a name that begins with ..": ([("../m.txt", b"data")], "unsafe name", 2),
    "a file that occurs twice": ([("m.txt", b"data"), ("m.txt", b"more")], "duplicate field", 3),
    "two files but for the case": ([("m.txt", b"data"), ("m.TXT", b"more")], "duplicate field", 3),
    "a key that comes again": (
        [("m.txt", b"data"), ("n.txt", b"data"), ("m.cls", b"00")],
        "duplicate key",
        4,
    ),
    "a field with a reserved name": ([("m.__key__", b"data")], "reserved field", 2),
}


@pytest.mark.parametrize(("members", "reason", "number"), FLAWS.values(), ids=FLAWS.keys())
def test_a_flaw_is_an_error_that_names_its_byte_or_is_counted_and_its_sample_skipped(
    tmp_path, members, reason, number
):
    path = shard(tmp_path / "shard.tar", [*GOOD[:2], *members, *GOOD[2:]])
    with pytest.raises(sk.DatasetError) as caught:
        len(TarDataset(path))
    with tarfile.open(path) as archive:
        offset = archive.getmembers()[number].offset
    assert f"{path}: {reason} at byte {offset}: " in str(caught.value)
    assert caught.value.hint
    with pytest.raises(sk.DatasetError, match=reason):
        make_catalogue(str(path), f"{tmp_path}/shard.skcat")
    dataset = TarDataset(path, on_error="skip")
    assert set(dataset.keys()) == {"a", "z", *(["n"] if reason == "duplicate key" else [])}
    assert dict(dataset.skipped.counts) == {reason: 1}
    assert [(place.archive, place.reason) for place in dataset.skipped.places] == [(str(path), reason)]
    assert dataset[0] == {"__key__": "a", "__url__": str(path), "txt": b"first", "cls": b"00"}


def test_a_sample_split_over_shards_is_an_error_or_left_out_of_both(tmp_path, caplog):
    one = shard(tmp_path / "0.tar", [*GOOD, ("m.txt", b"data")])
    other = shard(tmp_path / "1.tar", [("m.cls", b"00"), ("n.txt", b"data"), ("n.cls", b"00")])
    assert_refused(TarDataset([one, other]), r"1\.tar: split sample at byte 0: 'm' begins in .*0\.tar")
    dataset = TarDataset([one, other], on_error="skip")
    assert dataset.keys() == ["a", "z", "n"]
    assert dataset.layout == sk.Layout([2, 1], ["0.tar", "1.tar"])
    assert [sample["__key__"] for sample in dataset] == ["a", "z", "n"]
    assert [(f.archive, f.reason) for f in dataset.skipped.places] == [(str(other), "split sample")]
    assert "and the other archives: 1 split sample" in caplog.text


def test_keys_that_restart_in_each_shard_are_no_split_sample(tmp_path):
    paths = [shard(tmp_path / f"{number}.tar", [("0.txt", b"one"), ("0.cls", b"22")]) for number in range(3)]
    dataset = TarDataset(paths)
    assert dataset.keys() == ["0", "0", "0"]
    assert dataset.layout.sizes.tolist() == [1, 1, 1]


def test_data_after_the_end_of_an_archive_is_a_flaw(tmp_path):
    one, two = (
        shard(tmp_path / f"{name}.tar", [(f"{name}.txt", b"data")]).read_bytes() for name in ("one", "two")
    )
    both = tmp_path / "both.tar"
    both.write_bytes(one + two)
    assert_refused(TarDataset(both), f"data after the end at byte {len(one)}: another archive")
    dataset = TarDataset(both, on_error="skip")
    assert dataset.keys() == ["one"]
    assert dict(dataset.skipped.counts) == {"data after the end": 1}


def test_a_size_in_thousands_of_digits_is_a_damaged_header(tmp_path):
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("a.txt")
        member.pax_headers = {"size": "9" * 5000}
        archive.addfile(member)
    assert_refused(TarDataset(path), r"damaged header at byte \d+: the size in a pax")
    assert len(TarDataset(path, on_error="skip")) == 0


def extended(records, size=None):
    """An extended header, which says another size if one is given."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, len(records) if size is None else size
    return header.tobuf(tarfile.USTAR_FORMAT) + records.ljust(BLOCK, b"\0")


def test_a_size_in_a_pax_record_counts_and_the_long_target_of_a_link_before_it_does_not(tmp_path):
    long_link = tarfile.TarInfo("././@LongLink")
    long_link.type, long_link.size = tarfile.GNUTYPE_LONGLINK, 4
    headers = long_link.tobuf() + b"a/b\0".ljust(BLOCK, b"\0") + extended(b"10 size=4\n")
    path = tmp_path / "shard.tar"
    path.write_bytes(headers + tarfile.TarInfo("a.txt").tobuf() + b"data".ljust(3 * BLOCK, b"\0"))
    assert [sample["txt"] for sample in TarDataset(path)] == [b"data"]


DAMAGED_RECORD = "damaged header at byte 0: a pax record is damaged"
NO_ARCHIVES = {
    "nothing": (lambda data: b"", "truncated at byte 0"),
    "nothing, packed": (lambda data: gzip.compress(b""), "truncated at byte 0"),
    "a few zeros": (lambda data: bytes(100), "truncated at byte 0"),
    "text": (lambda data: b"not a tar file at all" * 100, "damaged header at byte 0"),
    "another magic": (
        lambda data: data.replace(b"ustar", b"sutar"),  # of the same sum
        "damaged header at byte 0: unknown format b'sutar",
    ),
    "no end mark": (
        lambda data: data[: 8 * BLOCK + 100],
        "truncated at byte 4096: the archive ends after 4196",
    ),
    "no end mark, nor padding": (
        lambda data: data[: 7 * BLOCK + 2],
        "truncated at byte 4096: the archive ends after 3586",
    ),
    "half an end mark": (
        lambda data: data[: 9 * BLOCK],
        "truncated at byte 4096: half of the end mark is missing",
    ),
    "an end mark in the middle": (
        lambda data: data[: 9 * BLOCK] + data,
        "damaged header at byte 4096: one block of zeros in the middle",
    ),
    "an extended header alone": (
        lambda data: extended(b"9 path=x\n") + bytes(2 * BLOCK),
        "damaged header at byte 1024: an extended header without a member",
    ),
    "an extended header that is cut": (
        lambda data: extended(b"9 path=x\n", 5 * BLOCK),
        "truncated at byte 0: the archive ends in an extended header",
    ),
    "an extended header of 2 GiB": (
        lambda data: extended(b"", 2 << 30) + data,
        "damaged header at byte 0: an extended header of 2147483648 bytes",
    ),
    "a record that says another length": (lambda data: extended(b"8 path=x\n") + data, DAMAGED_RECORD),
    "a record without its end": (lambda data: extended(b"9 path=xy") + data, DAMAGED_RECORD),
    "a record of a key that is not known": (
        lambda data: extended(b"9 pith=x\n") + data,
        "damaged header at byte 0: a pax record has the unknown key b'pith'",
    ),
    "bzip2": (bz2.compress, "is compressed by bzip2, which is not supported; unpack it"),
    "xz": (lzma.compress, "is compressed by xz, which is not supported; unpack it"),
    "zstandard": (lambda data: b"\x28\xb5\x2f\xfd" + data, "is compressed by zstandard, which is not"),
}


@pytest.mark.parametrize(("change", "text"), NO_ARCHIVES.values(), ids=NO_ARCHIVES)
def test_a_file_that_is_no_complete_archive_is_an_error(tmp_path, change, text):
    path = shard(tmp_path / "shard.tar", GOOD)
    path.write_bytes(change(path.read_bytes()))
    assert_refused(TarDataset(path), rf"shard\.tar: {text}")
    if "byte 0" in text:
        assert len(TarDataset(path, on_error="skip")) == 0


def test_a_sparse_file_is_an_error(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"first")
    with (tmp_path / "m.bin").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    if (tmp_path / "m.bin").stat().st_blocks * 512 >= 1 << 20:
        pytest.skip("the file system of the temporary folder keeps no sparse files")
    for kind in ("gnu", "pax"):
        options = ["-C", str(tmp_path), f"--format={kind}", "--sparse", "-cf", f"{tmp_path}/{kind}.tar"]
        command = ["tar", *options, "a.bin", "m.bin"]
        subprocess.run(command, check=True)
        assert_refused(TarDataset(tmp_path / f"{kind}.tar"), "unsupported member at byte (1024|2048):")


def test_every_flip_in_a_gzip_archive_is_found_or_changes_nothing(tmp_path):
    path = write(tmp_path / "shard.tar.gz", jpeg_tiles()[:9])
    data = path.read_bytes()
    whole = read_by_webdataset([path])
    harmless = []
    for place in [*range(12), *range(12, len(data) - 8, len(data) // 60), *range(len(data) - 8, len(data))]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        try:
            assert list(TarDataset(path)) == whole
            harmless.append(place)
        except sk.DatasetError as error:
            assert str(path) in str(error)  # noqa: PT017  # the test is whether there is an error
    # Some bits mean nothing (time and system in the header), others unpack to the same bytes.
    assert set(harmless).isdisjoint({0, 1, 2, *range(len(data) - 8, len(data))})
    assert len(harmless) < 30


def test_several_gzip_members_and_padding_are_read(tmp_path):
    path = write(tmp_path / "shard.tar", jpeg_tiles())
    data = path.read_bytes()
    whole = list(TarDataset(path))
    # The second one is larger than the buffer of unpacking.
    members = b"".join(map(gzip.compress, (data[:5000], data[5000:] + bytes(3 << 20), bytes(512))))
    path.write_bytes(members + bytes(700))
    assert list(TarDataset(path)) == whole
    path.write_bytes(members + b"garbage")
    assert_refused(TarDataset(path), f"damaged gzip at byte {len(members)}: ")
