"""The command `samplerkit`, for its output about configs; indexes never go into the user's cache folder."""

from tests.cli.conftest import cache_home, command, printed

__all__ = ["cache_home", "command", "printed"]
