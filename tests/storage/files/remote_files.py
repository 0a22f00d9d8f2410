"""The files of the tests that read from a web server."""

from __future__ import annotations

SIZES = [6] * 16
NAMES = [f"{number:03}.npz" for number in range(16)]
SECRET = "?X-Signature=5ec4e7"  # noqa: S105  # no secret of anyone's


def urls_of(web, query=""):
    """The addresses of the files."""
    return [f"{web.url}/data/{name}{query}" for name in NAMES]
