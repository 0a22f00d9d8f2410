"""The values in error messages: run `python -m tests.values_in_messages` to write them again.

Words may be changed; the class, the place, the numbers and the values in quotes are what a reader acts upon.
`data/wrong_arguments.json` has wrong calls with all of these; a new one is a line with an empty list, which
the program completes.
"""

import json
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import samplerkit as sk
from samplerkit.compat.torch.any_sampler import distributed
from samplerkit.inspect import quality, time_machine
from samplerkit.loading.world import detect_world
from samplerkit.storage.tar.write_indexes import index_shards
from tests.chains import under
from tests.docs.raised import CALLS

FILE = Path(__file__).parent / "data" / "values_in_messages.json"
WRONG = FILE.with_name("wrong_arguments.json")

_VALUE = re.compile(r"'[^']*'|\b(?:True|False|None)\b|(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
_DIGEST = re.compile(r"\b(?=\w*[a-f])[0-9a-f]{12,}\b")
_CHANGES_EACH_TIME = ("worker", "ranks: rank")
"""Process ids, and which of two threads is first."""

RECORDED = json.loads(FILE.read_text(encoding="utf-8"))
"""The recorded place and values of the errors of `OTHERS`."""

OTHERS = {name: call for name, call in CALLS.items() if not name.startswith(_CHANGES_EACH_TIME)}
"""Wrong calls that take more than a line, by the beginning of the message that they lead to."""


class Columns:
    """A dataset whose labels are too few."""

    targets = (1, 2)

    def __len__(self) -> int:
        return 3


class Unnamed(list[int]):
    """A dataset whose columns have no names yet."""

    column_names = None


class FixedIds(sk.Sampler):
    """Draws fixed ids."""

    def __init__(self, ids: Any) -> None:
        super().__init__()
        self.ids = ids

    def draw(self, layout: sk.Layout, context: sk.Context) -> Any:
        """Draws it."""
        return self.ids


def bridge() -> sk.TorchSampler:
    """A sampler for a plain `DataLoader`."""
    return sk.TorchSampler(sk.SequentialSampler(), 5, sk.World())


def cycle() -> None:
    """Makes a sampler its own child."""
    inner = sk.SequentialSampler()
    inner.add_child(under(sk.RandomSampler(), inner))


_NAMES = {"sk": sk, "np": np, "math": math, "torch": torch, "nested": under} | {
    each.__name__.rpartition(".")[2]: each
    for each in (
        *(distributed, quality, time_machine, detect_world, index_shards),
        *(Columns, Unnamed, FixedIds, bridge, cycle),
    )
}
"""What wrong calls may name."""


def evaluated(call: str) -> Any:
    """Evaluates a call as it is written in the file of wrong arguments."""
    return eval(call, _NAMES)  # noqa: S307  # our own file


def raised(call: Any) -> tuple[sk.SamplerkitError, str]:
    """The error of a call with a temporary folder, and the folder."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            call(Path(folder))
        except sk.SamplerkitError as error:
            return error, folder
    raise AssertionError("nothing was raised")


def values_of(error: sk.SamplerkitError, folder: str = "/nowhere") -> list[Any]:
    """The place and the values in an error; FOLDER stands for the folder of its call."""
    place, text = (
        _DIGEST.sub("DIGEST", text.replace(folder, "FOLDER")) for text in (error.place, str(error))
    )
    return [place, *_VALUE.findall(text.removeprefix(place))]


def write(file: Path, calls: dict[str, list[Any]]) -> None:
    """Writes a file, a call a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in calls.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Writes both files."""
    wrong = {}
    for call in json.loads(WRONG.read_text(encoding="utf-8")):
        error, _ = raised(lambda _, call=call: evaluated(call))
        wrong[call] = [type(error).__name__, *values_of(error)]
    write(WRONG, wrong)
    write(FILE, {name: values_of(*raised(call)) for name, call in OTHERS.items()})


if __name__ == "__main__":
    main()
