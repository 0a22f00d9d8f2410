"""Each fault of a server, many times: no byte is wrong, and each is retried or refused as documented."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.storage import Span
from tests.storage.remote.faults import CASES

TIMES = 20
"""How often each fault is met while it passes, by all ways together; while it stays, a third as often."""

SIZE = 5000


def asked(case, way, server, storage, times, *, is_permanent):
    """Meets a fault so many times, each on a file of its own, at the same time; gives what came of each."""
    draw = random.Random(case.name)
    # A short time limit only where one is to be met: the machine may be busy.
    timeout = 0.4 if case.says == "stalled" else 30.0
    reader = storage(timeout=timeout, threads=times, attempts=2 if is_permanent else 5)
    paths = [f"/{number}/file.bin" for number in range(times)]
    for path in paths:
        server.put(path, draw.randbytes(SIZE))
        if is_permanent or "redirect" in case.name:
            server.always[case.method, path] = case.fault
        else:
            server.faults[case.method, path] = [case.fault]

    def one(path):
        data, url = server.resources[path].data, f"{server.url}{path}?secret=query-secret"
        try:
            if way == "version":
                return reader.version(url).size == len(data)
            if way == "fetch":
                with reader.fetch(url) as local:
                    return Path(local.path).read_bytes() == data
            first = draw.randrange(SIZE - 200)
            return reader.read([Span(url, first, 100 + first % 100)])[0] == data[first:][: 100 + first % 100]
        except DatasetError as error:
            return error

    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(one, paths)), reader


WAYS = [(case, way) for case in CASES for way in case.ways]


@pytest.mark.parametrize(("case", "way"), WAYS, ids=[f"{case.name}, {way}" for case, way in WAYS])
def test_a_fault_that_passes(case, way, server, storage):
    times = TIMES // len(case.ways)
    outcomes, reader = asked(case, way, server, storage, times, is_permanent=False)
    assert False not in outcomes  # wrong bytes
    retries = reader.stats.retries
    if case.outcome == "refused":
        assert all(case.says in str(outcome) for outcome in outcomes)
        assert retries == 0
    else:
        assert outcomes == [True] * times
        expected = times if case.outcome == "retried" else 0
        assert retries == expected or (retries > expected and case.says == "stalled")
    if case.outcome == "retried" and case.method == "GET":
        assert len(server.asked("GET")) == times + retries


LASTING = [(case, way) for case, way in WAYS if case.outcome != "harmless"]


@pytest.mark.parametrize(("case", "way"), LASTING, ids=[f"{case.name}, {way}" for case, way in LASTING])
def test_a_fault_that_stays(case, way, server, storage):
    times = TIMES // 3
    outcomes, reader = asked(case, way, server, storage, times, is_permanent=True)
    for outcome in outcomes:
        assert isinstance(outcome, DatasetError)
        assert case.says in str(outcome)
        assert str(outcome).startswith(server.url)
        assert "secret" not in str(outcome)
        assert ("tried 2 times" in str(outcome)) is (case.outcome == "retried")
    assert reader.stats.retries >= (times if case.outcome == "retried" else 0)
    if case.outcome == "refused":
        assert reader.stats.retries == 0
