"""Braces, lists and globs."""

from __future__ import annotations

import braceexpand
import pytest

import samplerkit as sk
from samplerkit.storage import names
from samplerkit.storage.names import expand_braces
from samplerkit.storage.tar.read.shards import archive_names


@pytest.mark.parametrize(
    "pattern",
    [
        "train-{000000..001281}.tar",
        "{0..9}.tar",
        "{08..11}.tar",
        "{9..1}.tar",
        "{0..10..2}.tar",
        "{000..010..5}-{a,b}.tar",
        "{a,b}{1..3}.tar",
        "{a,b{1..2},c}.tar",
        "{x,y}/{0..1}/{00..02}.tar",
        "{a..e}.tar",
        "{a,}.tar",
        "{train,val}-{0..1}.{tar,tgz}",
        "plain.tar",
    ],
)
def test_braces_expand_as_in_webdataset(pattern):
    assert expand_braces(pattern) == list(braceexpand.braceexpand(pattern))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("b-1.tar", "b-10.tar", "b-9.tar", "B-2.tar", "sub/c.tar", "b-1.tar.skidx", "odd{1}.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_globs_are_sorted_by_bytes_and_leave_indexes_out(folder):
    assert archive_names("[bB]-*") == ("B-2.tar", "b-1.tar", "b-10.tar", "b-9.tar")
    assert archive_names("**/*.tar")[-1] == "sub/c.tar"
    several = ["b-9.tar", folder / "b-1.tar", "b-9.tar"]
    assert archive_names(iter(several)) == ("b-9.tar", f"{folder}/b-1.tar", "b-9.tar")
    assert archive_names(f"{folder}/{{b,B}}-?.tar") == tuple(
        f"{folder}/{name}.tar" for name in ("b-1", "b-9", "B-2")
    )


@pytest.mark.usefixtures("folder")
def test_a_file_whose_name_has_braces_is_taken_as_it_is():
    assert archive_names("odd{1}.tar") == ("odd{1}.tar",)


def test_too_many_names_are_refused(monkeypatch):
    monkeypatch.setattr(names, "MAX_NAMES", 10_000)  # the limit itself takes seconds to count up to
    with pytest.raises(sk.ArgumentValueError, match="more than 10000 archives"):
        expand_braces("{0..99}{000..999}.tar")
