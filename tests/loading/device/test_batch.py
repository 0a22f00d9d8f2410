"""What a batch may be, and what becomes of it on its way to a device."""

import collections
import types
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from samplerkit.loading.device.batch_tree import is_opaque, leaves, storages
from samplerkit.loading.device.stage import DeviceStage
from samplerkit.loading.device.streams import pinned

META = torch.device("meta")
"""A device that exists everywhere, and is not the cpu."""


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Plain:
    image: Any
    name: str = "cat"


@dataclass(frozen=True)
class Frozen:
    image: Any
    half: Any = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "half", self.image[:1])


@dataclass(frozen=True, slots=True)
class Slotted:
    image: Any


@dataclass
class Unset:
    image: Any
    later: Any = field(init=False)


class Tagged(list):
    def __init__(self, items):
        super().__init__(items)
        self.tag = "train"


class Located(tuple):
    """A tuple whose constructor takes other arguments than its items, and which has an attribute."""

    def __new__(cls, item, tag):
        items = super().__new__(cls, [item])
        items.tag = tag
        return items


class Table(collections.UserDict):
    pass


class Mask(torch.Tensor):
    pass


class Movable:
    def __init__(self, tensor):
        self.tensor = tensor

    def to(self, device, non_blocking=False):
        return Movable(self.tensor.to(device, non_blocking=non_blocking))


class Simple:
    """Its `to` knows a device and no more."""

    def __init__(self, tensor):
        self.tensor = tensor

    def to(self, device):
        self.tensor = self.tensor.to(device)
        return self


def tensor():
    return torch.arange(3)


def moved(batch):
    return next(DeviceStage(iter([batch]), META))


HOLDERS = {
    "a tensor": (tensor(), lambda b: b),
    "a list": ([1, tensor()], lambda b: b[1]),
    "a tuple": ((tensor(), "x"), lambda b: b[0]),
    "a named tuple": (Point(tensor(), 2), lambda b: b.x),
    "a subclass of tuple": (Located(tensor(), "left"), lambda b: b[0]),
    "torch's tuple": (torch.eye(2).max(dim=0), lambda b: b.indices),
    "a dict": ({"x": tensor()}, lambda b: b["x"]),
    "a detection batch": ((tensor(), ({"boxes": tensor(), "id": 3}, "x")), lambda b: b[1][0]["boxes"]),
    "a nest": ({"x": [(Point(0, {"y": tensor()}),)]}, lambda b: b["x"][0][0].y["y"]),
    "an ordered dict": (collections.OrderedDict(x=tensor()), lambda b: b["x"]),
    "a default dict": (collections.defaultdict(list, x=tensor()), lambda b: b["x"]),
    "a user's dict": (Table(x=tensor()), lambda b: b["x"]),
    "a read-only mapping": (types.MappingProxyType({"x": tensor()}), lambda b: b["x"]),
    "a subclass of list": (Tagged([tensor()]), lambda b: b[0]),
    "a dataclass": (Plain(tensor()), lambda b: b.image),
    "a frozen dataclass": (Frozen(tensor()), lambda b: b.half),
    "a dataclass with slots": (Slotted(tensor()), lambda b: b.image),
    "a dataclass with a field that is not set": (Unset(tensor()), lambda b: b.image),
    "a packed sequence": (pack_sequence([tensor(), tensor()[:2]]), lambda b: b.data),
    "an object with to": (Movable(tensor()), lambda b: b.tensor),
    "an object whose to takes a device only": (Simple(tensor()), lambda b: b.tensor),
    "a subclass of tensor": (torch.zeros(2).as_subclass(Mask), lambda b: b),
    "a sparse tensor": (torch.eye(2).to_sparse(), lambda b: b),
}


@pytest.mark.parametrize(("batch", "inside"), HOLDERS.values(), ids=HOLDERS.keys())
def test_tensors_are_moved_wherever_they_are_and_holders_keep_their_class(batch, inside):
    result = moved(batch)
    assert inside(result).device == META
    assert type(result) is type(batch)
    assert getattr(result, "default_factory", None) is getattr(batch, "default_factory", None)
    assert getattr(result, "tag", None) == getattr(batch, "tag", None)
    # The batch on the host stays as it was, but for an object that moves itself.
    assert result is batch or inside(batch).device.type == "cpu"


PASSING = [
    None,
    "text",
    3,
    np.arange(3),
    (),
    {},
    [None, ["a", {"b": 1}]],
    object(),
    torch.Size([2, 3]),
    Plain,
    Movable,
    {1, 2},
]


@pytest.mark.parametrize("batch", PASSING, ids=[str(type(batch).__name__) for batch in PASSING])
def test_everything_else_passes_as_the_same_object(batch):
    assert moved(batch) is batch


def test_a_batch_that_is_on_the_cpu_is_not_copied_to_it():
    batch = {"x": [tensor(), Point(tensor(), None)]}
    assert next(DeviceStage(iter([batch]), torch.device("cpu"))) is batch


def test_storages_finds_every_tensor_of_a_batch():
    one, two, three, four = (torch.tensor([n]) for n in range(4))
    batch = [one, {"x": Movable([two, {"y": three}])}, PackedSequence(four, torch.tensor([1])), None]
    tensors = [storage for leaf in leaves(batch) for storage in storages(leaf)]
    assert [tensors[k].item() for k in range(4)] == [0, 1, 2, 3]
    # Others might hold tensors where nobody finds them.
    assert [is_opaque(leaf) for leaf in leaves(batch)] == [False, True, False]


class Pinnable:
    """A leaf that pins itself.

    Args:
        result: what its method returns; None for another one of its kind.
    """

    def __init__(self, result=None):
        self.result = result

    def pin_memory(self):
        return Pinnable() if self.result is None else self.result

    def to(self, device):
        return self


def test_a_leaf_pins_itself_if_the_result_can_be_moved():
    movable, lost = Pinnable(), Pinnable("what no device takes")
    assert pinned(movable) is not movable
    assert isinstance(pinned(movable), Pinnable)
    assert pinned(lost) is lost
    for leaf in ("cat", torch.eye(2).to_sparse(), torch.empty(2, device="meta")):
        assert pinned(leaf) is leaf
