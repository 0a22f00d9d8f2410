"""Asking without leaving a trace: a sampler for its first ids, a module for its code, another process."""

from __future__ import annotations

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
from samplerkit.inspect.view import loader_of
from samplerkit.loading.generators import kept_generators
from samplerkit.loading.state.identity import seeds_of
from samplerkit.loading.state.state import digest

LARGEST = 1 << 20
"""The longest order that is asked for: some samplers build all of theirs to give the first id."""

PATIENCE_SECONDS = 120.0

_FIRST = 64
_ORDERED_NAMES = ("files", "paths", "samples", "urls", "shards", "indices", "ids", "imgs", "data")
_MARK = "samplerkit saw "
_PROGRAM = (
    "import sys; from samplerkit.inspect.doctor.probe import show_appearance; show_appearance(sys.argv[1])"
)


def ids_under(seen: Inspection, seed: int) -> list[Any] | None:
    """Returns the first ids, with the process-wide random states seeded for the time being.

    Args:
        seen: whose sampler is asked; it is copied first, so that what it counts stays.
        seed: of the states of torch, numpy and Python.

    Returns:
        At most 64 ids, or None of a sampler that is too long to ask or has nothing to give.
    """
    if (seen.size or 0) > LARGEST or not seen.samplers:
        return None
    with seeded(seed):
        if seen.view is not None:
            run = seen.view.run
            order = run.recipe.undealt_order(run.dataset, seen.view.epoch, constants=run.constants)
            return list(order[:_FIRST].tolist())
        innermost = copy.copy(seen.samplers[0])
        return [
            entry.tolist() if hasattr(entry, "tolist") else entry for entry in islice(iter(innermost), _FIRST)
        ]


def seeds(seen: Inspection) -> list[int]:
    """Returns all seeds that can be seen."""
    found = seeds_of(seen.chain[0]) if seen.chain else []
    for sampler in (*seen.bridges, *seen.others):
        seed, generator = getattr(sampler, "seed", None), getattr(sampler, "generator", None)
        found += [seed] if isinstance(seed, int) else []
        found += [generator.initial_seed()] if isinstance(generator, torch.Generator) else []
    return found


def appearance(loader: Any, world: Any = None) -> dict[str, str]:
    """Returns what another process must find the same: seeds, the first ids, the order of the dataset.

    Returns:
        A digest by name. The first ids are those under one random state: that they depend on it is
        another finding.
    """
    seen = Inspection.of(loader, world)
    held = seen.dataset if isinstance(seen.dataset, list | tuple) else None
    entries = [repr(entry) for entry in (held or [])[:_FIRST]]
    for name in _ORDERED_NAMES:
        value = getattr(seen.dataset, name, None)
        if isinstance(value, list | tuple):
            entries += [name, *map(repr, value[:_FIRST])]
    return {
        "the seed": digest(repr(seeds(seen))),
        "the first samples": digest(repr(ids_under(seen, 0))),
        "the order of the dataset": digest(repr(entries)),
    }


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the process-wide random states for the time being: what the caller draws next stays as it was."""
    with kept_generators():
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the legacy state is what other people's code draws from
        torch.default_generator.manual_seed(seed)
        yield


def module_codes(make: Callable[[], Any]) -> Iterator[CodeType]:
    """Yields all code of the module of a function; nothing where its source is not known."""
    module = inspect.getmodule(make)
    try:
        whole = None if module is None else compile(inspect.getsource(module), "", "exec")
    except (OSError, TypeError, SyntaxError, ValueError):
        return
    yield from () if whole is None else codes_in(whole)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yields a code object and all inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def saves_a_sampler(make: Callable[[], Any]) -> bool:
    """Whether the module of a function asks a sampler for its state, as in `sampler.state_dict()`."""
    for code in module_codes(make):
        steps = [step.argval for step in dis.get_instructions(code) if isinstance(step.argval, str)]
        if any(asked == "state_dict" and "sampler" in of.lower() for of, asked in pairwise(steps)):
            return True
    return False


def function_named(name: str) -> Callable[[], Any]:
    """Imports a function by its name, `module:function`, as seen from the working directory.

    Raises:
        ArgumentValueError: there is no such module, or it has no such function.
        ArgumentTypeError: it is no function.
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
        raise ArgumentTypeError("function", "cannot be called", name)
    made: Callable[[], Any] = function
    return made


def appearance_elsewhere(name: str) -> dict[str, str] | None:
    """Calls a function in another process, whose strings have other hashes, and returns what it made there.

    Args:
        name: `module:function`.

    Returns:
        The `appearance` of what was made; None where the function fails there.
    """
    # 0 and 1 are two ways to hash; unset and "random" are a third one.
    here = os.environ.get("PYTHONHASHSEED")
    environment = {**os.environ, "PYTHONHASHSEED": "1" if here != "1" else "0"}
    try:
        ended = subprocess.run(  # noqa: S603  # our own program, with the function that the user has named
            [sys.executable, "-c", _PROGRAM, name],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    lines = [line for line in ended.stdout.splitlines() if line.startswith(_MARK)]
    if ended.returncode or not lines:
        return None
    seen: dict[str, str] = json.loads(lines[-1].removeprefix(_MARK))
    return seen


def show_appearance(name: str) -> None:
    """Prints the appearance of what a function makes, for the process that asks."""
    made = loader_of(function_named(name)(), None)
    sys.stdout.write(f"\n{_MARK}{json.dumps(appearance(made))}\n")
