"""The state of a delivery: where a run stands, as a small JSON value that is the same on every rank.

Schema 2 added the unit of the position and named sections. A state of schema 1 counts samples and has no
sections; it loads for ever (`tests/data/states_1.json`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, StateError
from samplerkit.loading.identity import BEHIND, digest, fingerprint
from samplerkit.loading.sections import Section, require_known, require_sections
from samplerkit.order.arguments import INT64_MAX, MOST_LANES

SCHEMA = 2
"""The version of the state's fields; a newer one is refused."""

UNITS = ("samples", "batches")
"""What a position may count; one of batches has a section of that name."""

COMPARED = ("algorithm", "seed", "dataset", "sampler", "tail", "num_shards")
"""The fields that must be the same in the run that loads a state; each can be allowed to differ."""

_KEYWORD = "samplerkit"
_SINCE_2 = {"unit", "sections"}
_WRITER = json.JSONEncoder(sort_keys=True, default=str)

# A position is held against the order that it is of.
_INTEGERS = {
    "epoch": (0, INT64_MAX),
    "position": (-INT64_MAX, INT64_MAX),
    "lanes": (1, MOST_LANES),
    "limit": (0, INT64_MAX),
    "num_shards": (1, INT64_MAX),
}
_MAY_BE_NONE = {"limit", "num_shards"}


@dataclass(frozen=True)
class State:
    """Where a run stands.

    Args:
        algorithm: the id of the algorithm.
        seed: the seeds along the chain, outermost first.
        epoch: the epoch, from 0.
        position: how many units of the epoch's order all ranks together have received, pads not counted.
        lanes: the number of lanes that the first start fixed.
        limit: the limit of samples that the first start fixed; None for all.
        tail: the loader's tail.
        dataset: the dataset in words, with a digest.
        sampler: the chain in words.
        num_shards: the number of shards of a distributed sampler below the root; None where there is none.
        unit: what the position counts.
        sections: what else a run has to know, by name: see `sections.py`.
    """

    algorithm: str
    seed: tuple[int, ...]
    epoch: int
    position: int
    lanes: int
    limit: int | None
    tail: str
    dataset: str
    sampler: str
    num_shards: int | None
    unit: str = "samples"
    sections: Mapping[str, Section] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """The short name of the orders of all epochs of the run."""
        return fingerprint(
            algorithm=self.algorithm,
            seed=self.seed,
            dataset=self.dataset,
            sampler=self.sampler,
            lanes=self.lanes,
            limit=self.limit,
            edits=_all_edits(self.sections.get("ledger", {})),
        )

    def to_dict(self) -> dict[str, Any]:
        """Gives the state as JSON values, with the schema and a checksum."""
        values = {"schema": SCHEMA, **asdict(self), "seed": list(self.seed)}
        return {_KEYWORD: "loader", **values, "checksum": _checksum(values)}

    @classmethod
    def from_dict(cls, saved: Any) -> State:
        """Reads a saved state.

        Raises:
            StateError: it is no state of a loader, damaged, or of a newer schema; or a field holds what no
                run saves; or it depends on a section that this version does not know.
        """
        if not isinstance(saved, Mapping) or not _is_text(saved.get(_KEYWORD), "loader"):
            raise StateError("state", "is not the state of a samplerkit loader", saved)
        values = {name: value for name, value in saved.items() if name not in (_KEYWORD, "checksum")}
        schema = values.get("schema")
        if type(schema) is int and schema > SCHEMA:
            raise StateError(
                "schema", "is newer than this version reads", schema, SCHEMA, mend="update samplerkit"
            )
        if type(schema) is not int or schema < 1:
            raise StateError("schema", "is not known", schema, SCHEMA)
        expected = {"schema", *(named.name for named in fields(cls))}
        if set(values) != (expected - _SINCE_2 if schema == 1 else expected):
            raise StateError("state", "has missing or unknown fields", sorted(map(str, values)))
        for name, value in values.items():
            _require_plausible(name, value)
        if not _is_text(saved.get("checksum"), _checksum(values)):
            raise StateError(
                "checksum",
                "does not fit: the state is damaged or was edited",
                saved.get("checksum"),
                mend="take an older checkpoint",
            )
        require_known(values.get("sections", {}))
        if (values.get("unit") == "batches") != ("batches" in values.get("sections", {})):
            problem = "must say how batches are made, where the position counts batches, and only there"
            raise StateError("sections", problem, sorted(values.get("sections", {})))
        del values["schema"]
        return cls(**{**values, "seed": tuple(values["seed"])})

    def require_equal(self, current: State, allow: Collection[str] = ()) -> None:
        """Compares the fields that make up a run's identity.

        Args:
            current: the state of the run that loads this one.
            allow: names of fields that may differ.

        Raises:
            ArgumentTypeError: `allow` is no collection.
            ArgumentValueError: `allow` names a field that is not compared.
            StateError: a field differs; it names the field, the saved and the current value.
        """
        if isinstance(allow, str):
            raise ArgumentValueError("allow", "must be a set of field names", allow)
        if not isinstance(allow, Collection):
            raise ArgumentTypeError("allow", "must be a set of field names", allow)
        for name in allow:
            if name not in COMPARED:
                raise ArgumentValueError("allow", "is no field that is compared", name)
        for name in COMPARED:
            saved, here = getattr(self, name), getattr(current, name)
            # Versions that did not see what samplers look at in a dataset saved what stands before it.
            is_older = name == "dataset" and here.startswith(saved + BEHIND)
            if saved != here and not is_older and name not in allow:
                raise StateError(
                    name,
                    "is another one in the saved state",
                    saved,
                    here,
                    mend=f'if this is meant, say allow={{"{name}"}}',
                )
        if self.unit != current.unit:  # never allowed: a position in other units is another place
            how = "batches" if self.unit == "batches" else "batch_size"
            mend = f"make the loader with {how}=, as it was made when the state was saved"
            raise StateError("unit", "is another one in the saved state", self.unit, current.unit, mend=mend)


def _require_plausible(name: str, value: Any) -> None:
    """Refuses what no run saves, whose checksum may fit all the same."""
    if name in _INTEGERS:
        least, most = _INTEGERS[name]
        if value is None and name in _MAY_BE_NONE:
            return
        if type(value) is not int:
            raise StateError(name, "must be an integer", value)
        if not least <= value <= most:
            raise StateError(name, f"must be in [{least}, {most}]", value)
    elif name == "seed":
        _require_seeds(value)
    elif name == "sections":
        require_sections(value)
    elif name != "schema" and not isinstance(value, str):
        raise StateError(name, "must be a text", value)
    elif name == "unit" and value not in UNITS:
        raise StateError(name, "is not known to this version", value, UNITS[0], mend="update samplerkit")


def _require_seeds(value: Any) -> None:
    if not isinstance(value, list | tuple) or any(type(seed) is not int for seed in value):
        raise StateError("seed", "must be a list of integers", value)


def _is_text(value: Any, text: str) -> bool:
    """Compares with what may be anything, also an array."""
    return isinstance(value, str) and value == text


def _all_edits(section: Mapping[str, Any]) -> str | None:
    """What is said of all edits of a run, and of what their samplers look at where they do."""
    looks = section.get("looks")
    return section.get("all") if looks is None else f"{section['all']} {looks[1]}"


def _checksum(values: Mapping[str, Any]) -> str:
    return digest(_WRITER.encode(values))
