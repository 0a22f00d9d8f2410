"""Threads beside the loop are started so that what a signal handler raises meanwhile is raised as it is."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

import samplerkit as sk
from samplerkit.loading.background_thread import start_thread

BEGINS = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"
"""By what `Thread.start` begins one, from Python 3.13 on and before."""


class LeftByHandlerError(Exception):
    """What the handler of a signal raises."""


@pytest.mark.parametrize("options", [{"num_workers": 2, "workers": "threads"}, {"device": "cpu"}], ids=str)
def test_what_a_handler_raises_while_a_thread_is_started_is_raised_itself(options, monkeypatch):
    begin = getattr(threading, BEGINS)

    def interrupted(target, *arguments, **named):
        begin(target, *arguments, **named)
        target.__self__._started.wait()  # from then on the thread is no longer among those that begin
        raise LeftByHandlerError

    with sk.Loader(range(8), sk.SequentialSampler(), batch_size=2, **options) as loader:
        with monkeypatch.context() as patch:
            patch.setattr(threading, BEGINS, interrupted)
            with pytest.raises(LeftByHandlerError):
                next(iter(loader))
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_thread_that_cannot_be_started_says_so_whatever_is_being_handled(monkeypatch):
    def refused(*_, **__):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, BEGINS, refused)
    for handled in (None, OSError("before")):
        with suppress(OSError):
            try:
                if handled is not None:
                    raise handled
            finally:
                with pytest.raises(RuntimeError, match="can't start"):
                    start_thread(threading.Thread())
