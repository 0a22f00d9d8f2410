"""Rules about workers: splitting streams, objects shared by threads, memory of processes, prefetching."""

import dis
import io
import random
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
import torch.utils.data

from samplerkit.inspect.doctor.findings import Fault, Faults, rule
from samplerkit.inspect.doctor.inspection import GIB, Inspection
from samplerkit.inspect.doctor.probe import codes_in

_WORKER_NAMES = {"get_worker_info", "split_by_worker", "worker_info", "worker_id", "num_workers"}
_RANK_NAMES = {
    "get_rank",
    "get_world_size",
    "split_by_node",
    "RANK",
    "WORLD_SIZE",
    "rank",
    "world_size",
    "num_replicas",
    "process_index",
    "detect_world",
}
_SELF_SPLITTING = (
    *("datasets.", "webdataset.", "streaming.", "litdata.", "torchdata.", "megatron."),
    "samplerkit.compat.webdataset.",
)
_SHARD_NAMES = ("num_shards", "n_shards")
_LIST_NAMES = ("urls", "shards", "files", "paths")
_DEEPEST_STREAM = 4

_UNSAFE_TYPES = (io.IOBase, tarfile.TarFile, sqlite3.Connection, sqlite3.Cursor)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_GLOBAL_GENERATORS = (random._inst, np.random.mtrand._rand)
_LEAF_TYPES = (np.ndarray, torch.Tensor, *_UNSAFE_TYPES, *_GENERATORS)
_TORCH_NAMES = ("bernoulli", "multinomial", "normal", "rand", "rand_like", "randint", "randn", "randperm")
_TORCH_DRAWS = tuple(getattr(torch, name) for name in _TORCH_NAMES)
_OTHER_MODULES = ("torch.", "numpy", "builtins", "typing")
_SKIPPED_MODULES = (*_OTHER_MODULES, "samplerkit.", "collections", "logging", "threading")
_DEEPEST_SHARED = 5
_MAX_ENTRIES = 64

_BYTES_OF_AN_OBJECT = 64


@rule("error", Inspection.stream)
def workers_repeat(setup: Inspection) -> Faults:
    """Each worker reads the whole stream, so that each sample is read once per worker.

    Hint:
        split by torch.utils.data.get_worker_info() in __iter__, or use a map-style dataset
    """
    if setup.num_workers > 1 and not _uses_names(setup, _WORKER_NAMES):
        yield Fault(
            f"nothing in {type(setup.dataset).__name__} asks which worker it is in: each of "
            f"{setup.num_workers} workers reads the whole stream"
        )


@rule("error", Inspection.stream)
def ranks_repeat(setup: Inspection) -> Faults:
    """Each rank reads the whole stream.

    Hint:
        split by rank and world size in __iter__, or use a map-style dataset, which sk.Loader deals
    """
    ranks = setup.world.num_shards
    if ranks > 1 and not setup.deals and not _uses_names(setup, _RANK_NAMES):
        yield Fault(
            f"nothing in {type(setup.dataset).__name__} asks for its rank: each of {ranks} ranks reads the "
            "whole stream"
        )


@rule("error", Inspection.stream)
def idle_workers(setup: Inspection) -> Faults:
    """The stream has fewer shards than ranks x workers, so that some workers read nothing."""
    ranks, workers = setup.world.num_shards, max(1, setup.num_workers)
    shards = _num_shards(setup.dataset)
    if shards is not None and shards < ranks * workers:
        yield Fault(
            f"{shards} shards for {ranks} ranks x {workers} workers: some read nothing, and ranks end in "
            "different steps",
            f"write at least {ranks * workers} shards, or use fewer workers",
        )


@rule("error", Inspection.any_loader)
def not_thread_safe(setup: Inspection) -> Faults:
    """Threads share an object that is not thread-safe, such as an open file.

    Hint:
        give the dataset copy_for_thread(self), a copy that opens its own; or use workers="processes"
    """
    for path, obj in _shared(setup):
        if isinstance(obj, _UNSAFE_TYPES):
            yield Fault(
                f"{setup.threads} threads share {path}, an open {type(obj).__name__}: each moves its "
                "position for the others, which then read wrong bytes or fail"
            )
            return


@rule("warning", Inspection.any_loader)
def generator_shared(setup: Inspection) -> Faults:
    """Threads draw from one generator, so that draws cannot be reproduced.

    Hint:
        draw from sk.draw_rng() or sk.sample_rng(...), or use workers="processes"
    """
    for path, obj in _shared(setup):
        name = _generator_of(obj)
        if name is not None:
            yield Fault(
                f"{path} draws from {name}, which {setup.threads} threads share: draws cannot be "
                "reproduced, on a resume or otherwise"
            )
            return


@rule("warning", Inspection.any_loader)
def python_lists(setup: Inspection) -> Faults:
    """Each worker gets its own copy of the dataset's long Python lists, since reference counts are written.

    Hint:
        keep them in numpy arrays, whose pages workers share
    """
    for name, value in getattr(setup.dataset, "__dict__", {}).items():
        if not isinstance(value, list | tuple | dict):
            continue
        grows = len(value) * _BYTES_OF_AN_OBJECT * setup.num_workers
        if grows >= GIB:
            yield Fault(
                f"{type(setup.dataset).__name__}.{name} holds {len(value)} Python objects: "
                f"{setup.num_workers} workers come to own copies of up to {grows / GIB:.1f} GiB together"
            )


@rule("error", Inspection.any_loader)
def resume_inexact(setup: Inspection) -> Faults:
    """The saved state is ahead of what the loop received, so that a resume skips samples.

    Hint:
        use sk.Loader, or torchdata's StatefulDataLoader, whose states count what was received
    """
    if setup.num_workers == 0 or type(setup.loader) is not torch.utils.data.DataLoader or not setup.bridges:
        return
    # A sampler that starts inside of an epoch has loaded a state.
    if setup.saves_state or setup.bridges[0]._cursor.current.start > 0:
        ahead = setup.num_workers * (setup.loader.prefetch_factor or 2)
        yield Fault(
            f"the state of TorchSampler is up to {ahead} batches ahead of what the loop received, since "
            f"{setup.num_workers} workers read ahead: a resume skips them"
        )


def _num_shards(dataset: Any) -> int | None:
    numbers = (getattr(dataset, name, None) for name in _SHARD_NAMES)
    counts = [number for number in numbers if isinstance(number, int) and not isinstance(number, bool)]
    lists = (getattr(dataset, name, None) for name in _LIST_NAMES)
    counts += [len(names) for names in lists if isinstance(names, list | tuple) and names]
    return next(iter(counts), None)


def _uses_names(setup: Inspection, names: set[str]) -> bool:
    """Returns whether any code of the dataset, or of the objects in it, uses one of the names."""
    starter = getattr(setup.loader, "worker_init_fn", None)
    things = chain(_inside("", setup.dataset, _DEEPEST_STREAM, set()), _inside("", starter, 1, set()))
    return any(
        type(thing).__module__.startswith(_SELF_SPLITTING)
        or any(names & _code_names(function.__code__) for function in _functions_of(thing, _OTHER_MODULES))
        for _, thing in things
    )


def _code_names(code: CodeType) -> set[str]:
    return {
        name
        for inner in codes_in(code)
        for name in (*inner.co_names, *inner.co_varnames, *inner.co_consts)
        if isinstance(name, str)
    }


def _generator_of(obj: Any) -> str | None:
    """Names the generator that an object is, or that its code draws from; None if there is none."""
    referenced = (
        drawn
        for function in _functions_of(obj, _SKIPPED_MODULES)
        for drawn in _referenced_by(function.__code__, function.__globals__)
    )
    for drawn in (obj, *referenced):
        owner = drawn.__self__ if isinstance(drawn, BuiltinMethodType | MethodType) else drawn
        if any(owner is one for one in _GLOBAL_GENERATORS):
            return f"the generator of the process in {type(owner).__module__.partition('.')[0]}"
        if isinstance(owner, _GENERATORS):
            return f"a {type(owner).__name__}"
        if any(drawn is one for one in _TORCH_DRAWS):
            return "the generator of the process in torch"
    return None


def _shared(setup: Inspection) -> Iterator[tuple[str, Any]]:
    """Yields the objects that the threads of a loader share, each with its path."""
    if setup.threads:
        collate = setup.loader._workers.options.get("collate_fn")
        yield from _inside("dataset", setup.dataset, _DEEPEST_SHARED, set())
        yield from _inside("collate_fn", collate, 1, set())


def _inside(path: str, thing: Any, depth: int, visited: set[int]) -> Iterator[tuple[str, Any]]:
    if id(thing) in visited or thing is None or isinstance(thing, str | bytes | int | float | type):
        return
    visited.add(id(thing))
    # An object with `copy_for_thread` is copied for each thread, and not shared.
    if callable(getattr(type(thing), "copy_for_thread", None)):
        return
    yield path, thing
    if depth == 0 or isinstance(thing, _LEAF_TYPES):
        return
    if isinstance(thing, Mapping):
        parts = [(f"{path}[{key!r}]", thing[key]) for key in list(thing)[:_MAX_ENTRIES]]
    elif isinstance(thing, list | tuple):
        parts = [(f"{path}[{place}]", part) for place, part in enumerate(thing[:_MAX_ENTRIES])]
    elif isinstance(thing, partial):
        parts = [(f"{path}.func", thing.func), (f"{path}.args", thing.args)]
    else:
        parts = [(f"{path}.{name}", part) for name, part in getattr(thing, "__dict__", {}).items()]
    for name, part in parts:
        yield from _inside(name, part, depth - 1, visited)


def _functions_of(thing: Any, skipped: tuple[str, ...]) -> Iterator[FunctionType]:
    """Yields the functions that run when an object is used: the function itself, or those of its class.

    Args:
        thing: a function, or any object.
        skipped: prefixes of the names of modules whose classes are skipped.
    """
    members = [thing] if isinstance(thing, FunctionType | MethodType) else []
    for base in type(thing).__mro__ if not members else ():
        members += [] if base.__module__.startswith(skipped) else vars(base).values()
    for member in members:
        function = getattr(member, "fget", getattr(member, "__func__", member))
        if isinstance(function, FunctionType):
            yield function


def _referenced_by(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the objects of global names and their attributes in the code, as in `np.random.rand`."""
    for inner in codes_in(code):
        value: Any = None
        for step in dis.get_instructions(inner):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                value = names.get(step.argval)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                value = getattr(value, step.argval, None) if isinstance(value, ModuleType) else None
            else:
                continue
            if value is not None:
                yield value
