"""Threads as workers: what they share, and what each of them would need of its own."""

from __future__ import annotations

import dis
import io
import random
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.doctor.resume import codes_in

_OF_ONE_THREAD = (io.IOBase, tarfile.TarFile, sqlite3.Connection, sqlite3.Cursor)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_OF_PROCESS = (random._inst, np.random.mtrand._rand)
_OUTERMOST = (np.ndarray, torch.Tensor, *_OF_ONE_THREAD, *_GENERATORS)
_OF_TORCH = ("bernoulli", "multinomial", "normal", "rand", "rand_like", "randint", "randn", "randperm")
_DRAWS_OF_TORCH = tuple(getattr(torch, name) for name in _OF_TORCH)
_SAFE = ("samplerkit.", "torch.", "numpy.", "builtins", "typing", "collections", "logging", "threading")
_DEEPEST = 5
_MOST_ENTRIES = 64


def not_thread_safe(patient: Patient) -> Iterator[Finding]:
    """A dataset that all threads share, and that holds what serves one of them at a time."""
    for path, held in _held_by(patient):
        if isinstance(held, _OF_ONE_THREAD):
            yield Finding(
                "not-thread-safe",
                "error",
                f"{patient.threads} threads share {path}, an open {type(held).__name__}: each moves it for "
                "the others, which read wrong bytes, or it refuses them",
                "give the dataset copy_for_thread(self), a copy that opens its own; or say "
                'workers="processes"',
            )
            return


def generator_shared(patient: Patient) -> Iterator[Finding]:
    """Draws that hang on which thread comes first."""
    for path, held in _held_by(patient):
        name = _drawn_by(held)
        if name is not None:
            yield Finding(
                "generator-shared",
                "warning",
                f"{path} draws from {name}, which {patient.threads} threads share: nothing that is drawn "
                "repeats, on a resume or otherwise",
                'draw from sk.draw_rng() or sk.sample_rng(...), or say workers="processes"',
            )
            return


def _drawn_by(held: Any) -> str | None:
    """Names the generator that a thing is, or that its code draws from; None where there is none."""
    named = (
        drawn
        for function in _functions_of(held)
        for drawn in _named_by(function.__code__, function.__globals__)
    )
    for drawn in (held, *named):
        of = drawn.__self__ if isinstance(drawn, BuiltinMethodType | MethodType) else drawn
        if any(of is one for one in _OF_PROCESS):
            return f"the generator of the process in {type(of).__module__.partition('.')[0]}"
        if isinstance(of, _GENERATORS):
            return f"a {type(of).__name__}"
        if any(drawn is one for one in _DRAWS_OF_TORCH):
            return "the generator of the process in torch"
    return None


def _held_by(patient: Patient) -> Iterator[tuple[str, Any]]:
    """Goes through what the threads of a loader share, each with the path that leads there."""
    if patient.threads:
        collate = patient.loader._source._options.get("collate_fn")
        yield from _inside("dataset", patient.dataset, _DEEPEST, set())
        yield from _inside("collate_fn", collate, 1, set())


def _inside(path: str, thing: Any, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(thing) in seen or thing is None or isinstance(thing, str | bytes | int | float | type):
        return
    seen.add(id(thing))
    # What asks for a copy is not shared.
    if callable(getattr(type(thing), "copy_for_thread", None)):
        return
    yield path, thing
    if depth == 0 or isinstance(thing, _OUTERMOST):
        return
    if isinstance(thing, Mapping):
        parts = [(f"{path}[{key!r}]", thing[key]) for key in list(thing)[:_MOST_ENTRIES]]
    elif isinstance(thing, list | tuple):
        parts = [(f"{path}[{place}]", part) for place, part in enumerate(thing[:_MOST_ENTRIES])]
    elif isinstance(thing, partial):
        parts = [(f"{path}.func", thing.func), (f"{path}.args", thing.args)]
    else:
        parts = [(f"{path}.{name}", part) for name, part in getattr(thing, "__dict__", {}).items()]
    for name, part in parts:
        yield from _inside(name, part, depth - 1, seen)


def _functions_of(thing: Any) -> Iterator[FunctionType]:
    """The functions that run when a thing is read or called: its own, or the methods of its class."""
    if isinstance(thing, MethodType):
        thing = thing.__func__
    if isinstance(thing, FunctionType):
        yield thing
        return
    for base in type(thing).__mro__:
        if not base.__module__.startswith(_SAFE):
            members = (getattr(member, "__func__", member) for member in vars(base).values())
            yield from (member for member in members if isinstance(member, FunctionType))


def _named_by(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    """What global names and their attributes stand for, as in `np.random.rand`."""
    for inner in codes_in(code):
        found: Any = None
        for step in dis.get_instructions(inner):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                found = names.get(step.argval)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                found = getattr(found, step.argval, None) if isinstance(found, ModuleType) else None
            else:
                continue
            if found is not None:
                yield found
