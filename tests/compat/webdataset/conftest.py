"""Fixtures of all tests of the drop-in for webdataset."""

import pytest


@pytest.fixture(autouse=True)
def leftover_workers_end_soon(monkeypatch):
    """torch waits 5 s for a worker that does not end by itself, such as one that waits for a command."""
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.5)
