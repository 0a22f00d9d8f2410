"""Threads beside the loop are started so that what a signal handler raises meanwhile is raised as it is."""

from __future__ import annotations

import threading

import pytest

import samplerkit as sk


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
