"""The command `samplerkit`, run in the process of its test."""

import sys

import pytest

from samplerkit.cli.main import main
from tests.storage.conftest import cache_home

__all__ = ["cache_home"]


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs the command in this process, in 80 columns; returns its exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def called(*arguments):
        monkeypatch.setattr(sys, "argv", ["samplerkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        output, errors = capsys.readouterr()
        return end.value.code or 0, output, errors

    return called


@pytest.fixture
def refused(command):
    """Runs a command that is refused; returns the line that says why."""

    def called(*arguments):
        code, output, errors = command(*arguments)
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert errors.startswith("samplerkit: ")
        return errors

    return called


@pytest.fixture
def printed(command):
    """Runs a command that succeeds; returns its output."""

    def called(*arguments):
        code, output, _ = command(*arguments)
        assert code == 0
        return output

    return called
