"""Shards that commands write: run without a shell if allowed, and ended with their reader."""

import contextlib
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.compat.webdataset import WebDataset
from samplerkit.compat.webdataset.commands import parse_command
from tests.cli.processes import pids_of
from tests.compat.webdataset.shards import loader, number_of, once_each, received, write
from tests.storage.remote.server import served
from tests.waiting import wait_until

CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="the program curl is not installed")


def piped(urls, **options):
    return WebDataset(urls, allow_commands=True, **options)


def cat(path):
    return f"pipe:cat {path}"


def children():
    """The processes that this one has started and has not waited for."""
    pids = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            pids |= set((task / "children").read_text().split())
    return pids


def test_a_command_is_not_run_unless_it_is_allowed(tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(sk.ArgumentValueError, match="allow_commands=True") as caught:
        WebDataset(f"pipe:touch {mark} --token=5f3a")
    assert "5f3a" not in str(caught.value)
    with pytest.raises(sk.ArgumentTypeError, match="allow_commands"):
        WebDataset(f"pipe:touch {mark}", allow_commands="yes")
    assert not mark.exists()


@CURL
def test_a_command_that_fails_is_an_error_without_secrets(tmp_path):
    text = r"curl \.\.\. http://127.*no\.tar: the command failed after 0 bytes \(exit"
    with served(tmp_path) as web:
        url = f"pipe:curl -s -f -H 'Authorization: 5f3a' '{web.url}/no.tar?token=5f3a'"
        with pytest.raises(sk.DatasetError, match=text) as caught:
            list(piped(url))
    assert "5f3a" not in str(caught.value)
    assert "5f3a" not in repr(piped(url))
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("shards", "workers", "ranks", "window"),
    [(1, 3, 2, 7), (5, 2, 2, 7), (3, 0, 1, 0)],
)
def test_each_sample_is_read_once_over_ranks_and_workers(tmp_path, shards, workers, ranks, window):
    before = children()
    urls = cat(write(tmp_path, shards, 30))
    epochs = []
    for _ in range(2):
        read = []
        for rank in range(ranks):
            dataset = piped(urls, world=sk.World(ranks, rank)).shuffle(window).decode().map(number_of)
            dataset.set_epoch(len(epochs))
            read += received(loader(dataset, num_workers=workers))
        assert Counter(read) == once_each(30)
        epochs.append(read)
    assert (epochs[0] != epochs[1]) == (window > 0)
    assert children() <= before


def test_epochs_of_a_command_advance_and_with_epoch_reads_it_again(tmp_path):
    dataset = piped(cat(write(tmp_path, 1, 10))).shuffle(10).decode().map(number_of)
    first, second = list(dataset), list(dataset)
    assert Counter(first) == Counter(second) == once_each(10)
    assert first != second
    assert len(list(dataset.with_epoch(25))) == 25
    with pytest.raises(sk.ArgumentValueError, match="with_epoch"):
        piped(f"pipe:cat {tmp_path}/many-000.tar", equal_steps="pad")
    with pytest.raises(TypeError, match="not known"):
        len(dataset)


WRITES = "import os, sys; os.write(1, open(sys.argv[1], 'rb').read()"
"""The beginning of a program that writes its first argument."""

PROGRAMS = {
    "it does not start": ("pipe:no-such-program-at-all x", r"cannot be started \(No such file"),
    "it is killed": (
        "pipe:{python} -c 'import os; os.kill(os.getpid(), 9)'",
        r"failed after 0 bytes \(ended by signal 9\)",
    ),
    "it fails after a whole archive": (
        f'pipe:{{python}} -c "{WRITES}); sys.exit(3)" {{shard}}',
        r"failed after \d+ bytes \(exit status 3\)",
    ),
    "it fails in the middle of a gzip": (
        "pipe:sh -c 'gzip -c \"$0\" | head -c 100; exit 3' {shard}",
        r"failed after 100 bytes \(exit status 3\)",
    ),
    "it stops in the middle": (
        "pipe:head -c 3000 {shard}",
        "truncated at byte 2048: the archive ends in '00001.txt'",
    ),
    "it writes two archives": ("pipe:cat {shard} {shard}", "data after the end at byte"),
    "it sends nothing any more": (
        "pipe:sh -c 'head -c 2100 \"$0\"; sleep 600' {shard}",
        "has sent nothing for 1 s, after 2100 bytes",
    ),
    "it does not end": (
        "pipe:sh -c 'cat \"$0\"; exec 1>&-; sleep 600' {shard}",
        "has closed its output and does not end for 1 s",
    ),
}


@pytest.mark.parametrize(("url", "text"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_command_that_fails_is_an_error_and_never_a_shorter_epoch(tmp_path, url, text):
    before = children()
    write(tmp_path, 1, 4)
    url = url.format(shard=f"{tmp_path}/many-000.tar", python=sys.executable)
    dataset = piped(url, command_timeout=1 if "600" in url else 30)
    with pytest.raises(sk.DatasetError, match=text):
        list(dataset)
    assert children() <= before


ENDLESS = (
    'pipe:{python} -c \'import os, sys, time; os.write(1, open(sys.argv[1], "rb").read()[:4096]); '
    "os.fork(); time.sleep(600)' {shard} {marker}"
)


def endless(tmp_path):
    """Returns a command that runs forever with a child process, and a text in the arguments of both."""
    write(tmp_path, 1, 9)
    marker = f"marker-{os.getpid()}-{tmp_path.name}"
    return ENDLESS.format(python=sys.executable, shard=f"{tmp_path}/many-000.tar", marker=marker), marker


def fail(dataset):
    with pytest.raises(ZeroDivisionError):
        for _sample in dataset:
            print(1 // 0)


def close(dataset):
    before = children()
    iterator = iter(dataset)
    next(iterator)
    assert len(children() - before) == 1
    dataset.close()
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.parametrize("leaving", [fail, close])
def test_a_command_ends_when_its_loop_is_left(tmp_path, leaving):
    before = children()
    url, marker = endless(tmp_path)
    leaving(piped(url))
    wait_until(lambda: not pids_of(marker))
    assert children() <= before


def test_a_command_ends_with_the_worker_that_reads_it(tmp_path):
    write(tmp_path, 1, 9)
    marker = f"marker-{os.getpid()}-{tmp_path.name}"
    forever = f"pipe:sh -c 'while cat \"$0\"; do :; done' {tmp_path}/many-000.tar {marker}"
    for _batch in DataLoader(piped(forever), batch_size=1, num_workers=1):
        break
    wait_until(lambda: not pids_of(marker))


def test_commands_and_files_do_not_mix_and_have_no_index_options(tmp_path):
    path = write(tmp_path, 1, 4)
    with pytest.raises(sk.ArgumentValueError, match="mixes commands"):
        piped([cat(path), path])
    with pytest.raises(sk.ArgumentTypeError, match="checksums"):
        piped(cat(path), checksums=True)
    with pytest.raises(sk.ArgumentRangeError, match="positive"):
        piped(cat(path), command_timeout=0)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("A=5f3a cat a.tar", "env"),
        ("", "no program"),
        ("cat 'a.tar", "quotes"),
        ("zcat a.tgz | head", r"needs a shell for an operator, got '\|'"),
        ("curl -s http://host/a.tar 2>/dev/null", r"needs a shell for an operator, got '>'"),
        ("zcat a.tgz|head", r"needs a shell for an operator, got '\|'"),
        ("cat a.tar && rm a.tar", "got '&&'"),
        ("cat a.tar > b.tar", "got '>'"),
    ],
)
def test_commands_without_a_program_or_with_operators_are_refused(command, text):
    with pytest.raises(sk.ArgumentValueError, match=text) as caught:
        parse_command(f"pipe:{command}")
    assert "5f3a" not in str(caught.value)


def test_operators_within_an_argument_are_text():
    command = parse_command(r"pipe:curl -s http://me:5f3a@h/a.tar?x=1&y=$2 'a|b' ''")
    assert command.arguments == ("curl", "-s", "http://me:5f3a@h/a.tar?x=1&y=$2", "a|b", "")
    assert command.shown == "curl ... http://h/a.tar ..."
    assert "5f3a" not in repr(command)
