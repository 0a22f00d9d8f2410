"""The command `samplerkit`, whose output about runs is tested."""

from tests.cli.conftest import command, said

__all__ = ["command", "said"]
