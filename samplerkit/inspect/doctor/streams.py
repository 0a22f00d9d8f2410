"""Iterable datasets: streams that workers and ranks must split among themselves."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient

_BY_WORKER = {"get_worker_info", "split_by_worker", "worker_info", "worker_id", "num_workers"}
_BY_RANK = {
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
_SPLIT_THEMSELVES = ("datasets.", "webdataset.", "streaming.", "litdata.", "torchdata.", "megatron.")
_SHARD_NAMES = ("num_shards", "n_shards")
_LIST_NAMES = ("urls", "shards", "files", "paths")
_DEEPEST = 4


def workers_repeat(patient: Patient) -> Iterator[Finding]:
    """A stream that no worker cuts."""
    if not patient.is_iterable or patient.num_workers < 2 or _knows(patient, _BY_WORKER):
        return
    yield Finding(
        "workers-repeat",
        "error",
        f"nothing in {type(patient.dataset).__name__} asks which worker it is in: each of "
        f"{patient.num_workers} workers reads the whole stream",
        "split by torch.utils.data.get_worker_info() in __iter__, or use a map-style dataset",
    )


def ranks_repeat(patient: Patient) -> Iterator[Finding]:
    """A stream that no rank cuts."""
    if (
        not patient.is_iterable
        or patient.world.num_shards == 1
        or patient.deals()
        or _knows(patient, _BY_RANK)
    ):
        return
    yield Finding(
        "ranks-repeat",
        "error",
        f"nothing in {type(patient.dataset).__name__} asks for its rank: each of {patient.world.num_shards} "
        "ranks reads the whole stream",
        "split by rank and world size in __iter__, or use a map-style dataset, which sk.Loader deals",
    )


def idle_workers(patient: Patient) -> Iterator[Finding]:
    """Shards of a stream that do not go round."""
    readers = patient.world.num_shards * max(1, patient.num_workers)
    shards = _num_shards(patient.dataset) if patient.is_iterable else None
    if shards is None or shards >= readers:
        return
    yield Finding(
        "idle-workers",
        "error",
        f"{shards} shards for {patient.world.num_shards} ranks x {max(1, patient.num_workers)} workers: some "
        "read nothing, and ranks end in different steps",
        f"write at least {readers} shards, or use fewer workers",
    )


def _num_shards(dataset: Any) -> int | None:
    for name in _SHARD_NAMES:
        number = getattr(dataset, name, None)
        if isinstance(number, int) and not isinstance(number, bool):
            return number
    for name in _LIST_NAMES:
        held = getattr(dataset, name, None)
        if isinstance(held, list | tuple) and held:
            return len(held)
    return None


def _knows(patient: Patient, names: set[str]) -> bool:
    """Whether any code of the dataset, or of what it is made of, uses one of the names."""
    starter = getattr(patient.loader, "worker_init_fn", None)
    return _uses(patient.dataset, names, _DEEPEST) or (starter is not None and _uses(starter, names, 1))


def _uses(thing: Any, names: set[str], depth: int) -> bool:
    kind = type(thing)
    if kind.__module__.startswith(_SPLIT_THEMSELVES):
        return True
    functions = [getattr(thing, "__func__", thing)] if hasattr(thing, "__code__") else []
    for base in kind.__mro__:
        if base.__module__.startswith(("torch.", "builtins", "typing", "numpy")):
            continue
        functions += [getattr(member, "fget", None) or member for member in vars(base).values()]
    codes = [code for code in (getattr(f, "__code__", None) for f in functions) if code is not None]
    if any(names & _words(code) for code in codes):
        return True
    held = getattr(thing, "__dict__", {}).values() if depth > 0 else ()
    return any(_uses(part, names, depth - 1) for part in held if hasattr(part, "__iter__") or callable(part))


def _words(code: CodeType) -> set[str]:
    words = {*code.co_names, *code.co_varnames}
    for constant in code.co_consts:
        if isinstance(constant, str):
            words.add(constant)
        elif isinstance(constant, CodeType):
            words |= _words(constant)
    return words
