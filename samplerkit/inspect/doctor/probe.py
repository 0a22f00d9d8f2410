"""Probes without side effects: the first ids of a sampler, the code of a module, and another process."""

import copy
import dis
import inspect
import json
import os
import pkgutil
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import torch

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.inspect.doctor.inspection import Inspection
from samplerkit.loading.generators import preserved_generators
from samplerkit.loading.state.identity import seeds_of
from samplerkit.loading.state.state import digest

LARGEST = 1 << 20
"""The longest order that is probed: some samplers build their whole order for the first id."""

TIMEOUT_SECONDS = 120.0

_FIRST = 64
_ORDERED_NAMES = ("files", "paths", "samples", "urls", "shards", "indices", "ids", "imgs", "data")
_MARK = "samplerkit saw "
_PROGRAM = "import sys; from samplerkit.inspect.doctor.probe import print_digests; print_digests(sys.argv[1])"


def ids_with_seed(setup: Inspection, seed: int) -> list[Any] | None:
    """Returns the first ids under temporarily seeded process-wide random states.

    Args:
        setup: the loader; its sampler is copied first, so that the sampler's state does not change.
        seed: the seed for torch, numpy and Python.

    Returns:
        At most 64 ids; None if there is no sampler, or if its order is too long.
    """
    if (setup.size or 0) > LARGEST or not setup.samplers:
        return None
    with seeded(seed):
        if setup.view is not None:
            run = setup.view.run
            order = run.sampler.undealt_order(run.dataset, setup.view.epoch, constants=run.constants)
            return list(order[:_FIRST].tolist())
        innermost = copy.copy(setup.samplers[0])
        return [
            entry.tolist() if hasattr(entry, "tolist") else entry for entry in islice(iter(innermost), _FIRST)
        ]


def seeds(setup: Inspection) -> list[int]:
    """Returns all seeds of the loader's samplers that can be found."""
    values = seeds_of(setup.chain[0]) if setup.chain else []
    for sampler in (*setup.bridges, *setup.others):
        seed, generator = getattr(sampler, "seed", None), getattr(sampler, "generator", None)
        values += [seed] if isinstance(seed, int) else []
        values += [generator.initial_seed()] if isinstance(generator, torch.Generator) else []
    return values


def digests_of(source: Any, world: Any = None) -> dict[str, str]:
    """Returns digests that must be the same in all processes: of seeds, first ids and the dataset's order.

    Returns:
        Digests by name. The first ids are taken under a fixed random state: if they depend on it, that is
        another finding.
    """
    setup = Inspection.of(source, world)
    lists = (setup.dataset, *(getattr(setup.dataset, name, None) for name in _ORDERED_NAMES))
    entries = [value[:_FIRST] if isinstance(value, list | tuple) else None for value in lists]
    return {
        "the seed": digest(repr(seeds(setup))),
        "the first samples": digest(repr(ids_with_seed(setup, 0))),
        "the order of the dataset": digest(repr(entries)),
    }


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the process-wide random states within the `with` block, and restores them afterwards."""
    with preserved_generators():
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the legacy state, from which other code draws
        torch.default_generator.manual_seed(seed)
        yield


def module_codes(make: Callable[[], Any]) -> Iterator[CodeType]:
    """Yields all code objects of a function's module; nothing if its source is not available."""
    module = inspect.getmodule(make)
    try:
        compiled = None if module is None else compile(inspect.getsource(module), "", "exec")
    except (OSError, TypeError, SyntaxError, ValueError):
        return
    yield from () if compiled is None else codes_in(compiled)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yields a code object and all nested ones."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def saves_sampler_state(make: Callable[[], Any]) -> bool:
    """Returns whether the module of a function reads the state of a sampler, as in `sampler.state_dict()`."""
    for code in module_codes(make):
        steps = [step.argval for step in dis.get_instructions(code) if isinstance(step.argval, str)]
        if any(name == "state_dict" and "sampler" in owner.lower() for owner, name in pairwise(steps)):
            return True
    return False


def function_named(name: str) -> Callable[[], Any]:
    """Imports a function by its name, `module:function`; modules in the working directory are found.

    Raises:
        ArgumentValueError: there is no such module, or it has no such function.
        ArgumentTypeError: the object is not callable.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        function = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentValueError(
            "function", f"cannot be imported ({error})", name, hint="write module:function"
        ) from error
    if not callable(function):
        raise ArgumentTypeError("function", "cannot be called", name, hint="write module:function")
    result: Callable[[], Any] = function
    return result


def digests_in_subprocess(name: str) -> dict[str, str] | None:
    """Calls a function in another process with another hash seed, and returns the digests of its result.

    Args:
        name: the function, `module:function`.

    Returns:
        The result of `digests_of`; None if the function fails there.
    """
    # 0 and 1 are two fixed hash seeds; if it is unset or "random", hashes differ from both.
    hash_seed = os.environ.get("PYTHONHASHSEED")
    environment = {**os.environ, "PYTHONHASHSEED": "1" if hash_seed != "1" else "0"}
    try:
        process = subprocess.run(  # noqa: S603  # our own program, with the function that the user has named
            [sys.executable, "-c", _PROGRAM, name],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    lines = [line for line in process.stdout.splitlines() if line.startswith(_MARK)]
    if process.returncode or not lines:
        return None
    digests: dict[str, str] = json.loads(lines[-1].removeprefix(_MARK))
    return digests


def print_digests(name: str) -> None:
    """Prints the digests of a function's result, for the parent process."""
    digests = digests_of(function_named(name)())
    sys.stdout.write(f"\n{_MARK}{json.dumps(digests)}\n")
