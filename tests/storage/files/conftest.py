"""Files on a web server, and where they are kept."""

from __future__ import annotations

import pytest

from samplerkit.storage.remote.options import RemoteOptions
from tests.storage.files.folders import write_npz
from tests.storage.files.remote_files import SIZES
from tests.storage.files.web import serving


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web")
    write_npz(folder / "data", SIZES)
    return folder


@pytest.fixture(name="web")
def fixture_web(folder):
    with serving(folder) as web:
        yield web


@pytest.fixture(name="remote")
def fixture_remote(tmp_path):
    return RemoteOptions(cache=tmp_path / "cache", retry_seconds=2)
