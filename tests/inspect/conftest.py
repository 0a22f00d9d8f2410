"""The command `samplerkit`, whose output about runs is tested."""

from tests.cli.conftest import command, printed

__all__ = ["command", "printed"]
