"""The packages that parse formats: each an extra, imported when a dataset of its format is made."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from samplerkit.errors import DatasetError


def extra(module: str, name: str) -> Any:
    """Imports a module of a package that is not needed by all.

    Args:
        module: its full name.
        name: the extra that brings the package.

    Raises:
        DatasetError: it is not installed.

    Example:
        >>> extra("json", "json").dumps([1])
        '[1]'
        >>> extra("no_such_package", "nothing")
        Traceback (most recent call last):
        samplerkit.errors.DatasetError: nothing: needs no_such_package, which is not installed; \
install it with: pip install "samplerkit[nothing]"
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        mend = f'install it with: pip install "samplerkit[{name}]"'
        raise DatasetError(name, f"needs {package}, which is not installed", mend=mend) from error
