"""The command `samplerkit`, for what it says of runs."""

from tests.cli.conftest import command, said

__all__ = ["command", "said"]
