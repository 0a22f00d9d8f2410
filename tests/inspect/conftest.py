"""The command `samplerkit`, for its output about runs."""

from tests.cli.conftest import command, printed

__all__ = ["command", "printed"]
