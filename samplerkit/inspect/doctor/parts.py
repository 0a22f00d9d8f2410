"""Datasets of datasets: parts that hold nothing or stand there twice, and parts that are told nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import ConcatDataset

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.order.layout import Layout

_IS_TOLD = ("__getitems__", "expect", "set_epoch")
"""What a `ConcatDataset` does not hand on."""


def empty_part(patient: Patient) -> Iterator[Finding]:
    """Parts of a tree without samples."""
    if patient.view is None:
        return
    empty = ["/".join(path) for path, leaf in patient.view.layout.leaves if path and not len(leaf)]
    if empty:
        yield Finding(
            "empty-part",
            "warning",
            f"{_named(empty)} of the tree {'holds' if len(empty) == 1 else 'hold'} no sample",
            "see whether its files are where it looks for them, or leave it out",
        )


def same_part(patient: Patient) -> Iterator[Finding]:
    """One dataset in several places of a tree: its samples come more often than the weights say."""
    seen: dict[Any, list[str]] = {}
    for name, dataset in _leaves("", patient.dataset):
        files = getattr(dataset, "files", None)
        what = tuple(files) if isinstance(files, list | tuple) and files else id(dataset)
        seen.setdefault(getattr(dataset, "fingerprint", None) or what, []).append(name)
    for names in seen.values():
        if len(names) > 1:
            yield Finding(
                "same-part",
                "warning",
                f"{_named(names)} of the tree are one dataset: its samples have an id in each",
                "leave one out and give the other its weight; read more often, it has a pass more",
            )


def parts_not_told(patient: Patient) -> Iterator[Finding]:
    """A ConcatDataset of datasets that could read batches, or would be told what comes."""
    dataset = patient.dataset
    if type(dataset) is not ConcatDataset:
        return
    lost = {name for part in dataset.datasets for name in _IS_TOLD if callable(getattr(part, name, None))}
    if lost:
        yield Finding(
            "parts-not-told",
            "warning",
            f"a ConcatDataset of {len(dataset.datasets)} parts hands {', '.join(sorted(lost))} on to none: "
            "they are read one by one, and not ahead",
            "say sk.TreeDataset({'name': part, ...}), over which the same orders work",
        )


def _leaves(name: str, dataset: Any) -> Iterator[tuple[str, Any]]:
    parts = getattr(dataset, "parts", None)
    if isinstance(getattr(dataset, "layout", None), Layout) and isinstance(parts, Mapping):
        for key, part in parts.items():
            yield from _leaves(f"{name}/{key}".removeprefix("/"), part)
    else:
        yield name, dataset


def _named(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:4])) + (", ..." if len(names) > 4 else "")
    return f"part{'' if len(names) == 1 else 's'} {shown}"
