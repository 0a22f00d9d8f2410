"""The command `samplerkit`, for what it says of configs."""

from tests.cli.conftest import command, said

__all__ = ["command", "said"]
