"""Threads beside the loop are started so that what a signal handler raises meanwhile is raised as it is."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

import samplerkit as sk
from samplerkit.loading.beside_the_loop import start_thread


class LeftByHandlerError(Exception):
    """What the handler of a signal raises."""


@pytest.mark.parametrize("options", [{"num_workers": 2, "workers": "threads"}, {"device": "cpu"}], ids=str)
def test_what_a_handler_raises_while_a_thread_is_started_is_raised_itself(options, monkeypatch):
    begin = threading._start_new_thread

    def interrupted(target, arguments):
        begin(target, arguments)
        target.__self__._started.wait()  # from then on the thread is no longer among those that begin
        raise LeftByHandlerError

    with sk.Loader(range(8), sk.SequentialSampler(), batch_size=2, **options) as loader:
        with monkeypatch.context() as patch:
            patch.setattr(threading, "_start_new_thread", interrupted)
            with pytest.raises(LeftByHandlerError):
                next(iter(loader))
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_thread_that_cannot_be_started_says_so_whatever_is_being_handled(monkeypatch):
    def refused(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refused)
    for handled in (None, OSError("before")):
        with suppress(OSError):
            try:
                if handled is not None:
                    raise handled
            finally:
                with pytest.raises(RuntimeError, match="can't start"):
                    start_thread(threading.Thread())
