"""States as each reader of the package saves them, and the ids that follow each.

`tests/data/states.json` holds them. They are frozen: a state that was saved once loads for ever. So
`python -m tests.loading.saved_states` writes the file only where there is none.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.compat.torch import DistributedSampler, distributed
from tests.chains import under
from tests.compat.partially_shuffle.folders import ids_of, make_dataset, make_sampler
from tests.compat.webdataset.shards import numbers, write
from tests.numbers import Numbers

FILE = Path(__file__).parents[1] / "data" / "states.json"

LAYOUT = sk.Layout([7, 4, 11, 5])
SIZE = len(LAYOUT)
TWO = sk.World(2, 1)


def as_list(batch: Any) -> list[int]:
    return [int(index) for index in batch]


def loader(sampler: sk.Sampler, layout: sk.Layout = LAYOUT, **options: Any) -> sk.Loader:
    options = {"batch_size": 3, "world": TWO, "collate_fn": as_list, **options}
    return sk.Loader(Numbers(layout), sampler, **options)


def by_dealing(_: Path) -> sk.Loader:
    return loader(sk.DistributedSampler(shuffle="partial", partial_size=4, seed=9, num_samples=11))


def partially_shuffled(folder: Path, version: int) -> Any:
    sizes = [1 + 7 * number % 11 for number in range(6)]
    return make_sampler(make_dataset(folder, sizes), 2, 1, version=version, shuffle_buffer=9, batch_size=4)


def webdataset(folder: Path) -> Any:
    urls = f"{folder}/many-{{000..002}}.tar"
    if not any(folder.glob("*.tar")):
        assert write(folder, 3, 20) == urls
    return numbers(urls, folder, seed=3).shuffle(8)


LENGTHS = [1 + 5 * number % 7 for number in range(SIZE)]
TREE = sk.Layout.tree({"web": sk.Layout([9, 4]), "code": sk.Layout([8]), "books": sk.Layout([6])})


def by_batches(recipe: sk.BatchRecipe, sampler: sk.Sampler, **options: Any) -> sk.Loader:
    return loader(sampler, batch_size=None, batches=recipe, **options)


def ledger(below: sk.Sampler, *edits: sk.Edit) -> sk.Ledger:
    return sk.Ledger(below, edits)


def mixture(**options: Any) -> sk.MixtureSampler:
    sources = {"web": sk.RandomSampler(seed=2, shuffle="files"), "code": None, "books": None}
    weights = {"web": 3, "code": 2, "books": 1}
    return sk.MixtureSampler(sources, weights=weights, seed=4, **options)


def of_tokens(folder: Path, sampler: sk.Sampler, **options: Any) -> sk.Loader:
    for number, length in enumerate((100, 57, 130)):
        np.save(folder / f"{number}.npy", np.arange(length, dtype=np.uint16) + 1000 * number)
    windows = sk.TokenDataset([folder / f"{number}.npy" for number in range(3)], 6, block_len=12, seed=1)
    return sk.Loader(windows, sampler, batch_size=2, world=TWO, collate_fn=first_tokens, **options)


def first_tokens(rows: Any) -> list[int]:
    return [int(row[0]) for row in rows]


def blocks(below: sk.Sampler | None = None) -> sk.Sampler:
    return under(sk.BlockSampler(2, seed=3), below)


KINDS: dict[str, Callable[[Path], Any]] = {
    "Loader, global": lambda _: loader(sk.RandomSampler(seed=3)),
    "Loader, partial with a limit": by_dealing,
    "Loader, files, ragged": lambda _: loader(
        sk.DistributedSampler(shuffle="files", offset=1), tail="ragged"
    ),
    "Loader, infile, drop": lambda _: loader(sk.DistributedSampler(shuffle="infile", seed=4), tail="drop"),
    "Loader, weighted": lambda _: loader(
        sk.WeightedRandomSampler([1.0 + i % 5 for i in range(SIZE)], seed=6)
    ),
    "Loader, dealt below the root": lambda _: loader(
        under(sk.SequentialSampler(), sk.DistributedSampler(2, 1, seed=5))
    ),
    "Loader, continued": lambda _: loader(sk.RandomSampler(seed=3), after_break="continue"),
    "TorchSampler": lambda _: sk.TorchSampler(sk.RandomSampler(seed=3), LAYOUT, TWO),
    "TorchSampler, partial": lambda _: sk.TorchSampler(
        sk.DistributedSampler(shuffle="partial", partial_size=4, seed=9), LAYOUT, TWO
    ),
    "TorchBatchSampler": lambda _: sk.TorchBatchSampler(
        sk.TorchSampler(sk.DistributedSampler(offset=0, seed=2), LAYOUT, TWO), 3
    ),
    "torch's DistributedSampler": lambda _: DistributedSampler(range(SIZE), 2, 1, seed=3),
    "torch's DistributedSampler, drop_last": lambda _: DistributedSampler(range(SIZE), 2, 1, drop_last=True),
    "torch's DistributedSampler, our order": lambda _: DistributedSampler(
        range(SIZE), 2, 1, seed=3, algorithm="samplerkit-1"
    ),
    "any torch sampler": lambda _: distributed([3 * i % SIZE for i in range(SIZE)], 2, 1, seed=3),
    "PartiallyShuffle 1": lambda folder: partially_shuffled(folder, 1),
    "PartiallyShuffle 2": lambda folder: partially_shuffled(folder, 2),
    "webdataset": webdataset,
    "DeviceLoader over Loader": lambda _: sk.DeviceLoader(loader(sk.RandomSampler(seed=3)), "cpu"),
    "DeviceLoader over DataLoader": lambda _: sk.DeviceLoader(
        DataLoader(range(SIZE), 4, sampler=Rotated(), collate_fn=torch.tensor), "cpu"
    ),
    "batches by tokens": lambda _: by_batches(
        sk.TokenBatches(12, lengths=LENGTHS), sk.RandomSampler(seed=3), tail="split"
    ),
    "batches by tokens, windows": lambda _: by_batches(
        sk.TokenBatches(12, lengths=LENGTHS, window=9), sk.RandomSampler(seed=3, shuffle="files")
    ),
    "batches in buckets": lambda _: by_batches(
        sk.BucketBatches([2, 4, 7], 3, lengths=LENGTHS), sk.RandomSampler(seed=3), tail="drop"
    ),
    "packs": lambda _: by_batches(sk.PackBatches(14, lengths=LENGTHS), sk.RandomSampler(seed=3)),
    "ledger": lambda _: loader(
        ledger(sk.RandomSampler(seed=3), sk.Edit(at=12, skip=4), sk.Edit(at=36, without=[5, 11]))
    ),
    "ledger of batches": lambda _: by_batches(
        sk.TokenBatches(12, lengths=LENGTHS, window=9),
        ledger(sk.RandomSampler(seed=3), sk.Edit(at=9, skip=4)),
    ),
    "mixture of a tree": lambda _: loader(mixture(), TREE),
    "mixture of a tree, restarted": lambda _: loader(mixture(passes="restart", num_samples=20), TREE),
    "mixture, edited": lambda _: loader(
        ledger(mixture(num_samples=24), sk.Edit(at=30, weights={"web": 1, "code": 1, "books": 4})), TREE
    ),
    "mixture of files": lambda _: loader(sk.MixtureSampler([3, 1, 2, 1], seed=4)),
    "repeat factors": lambda _: loader(sk.RepeatFactorSampler([1 + i % 3 / 2 for i in range(SIZE)], seed=4)),
    "an iterable": lambda _: loader(sk.IterSampler([*range(SIZE), 3])),
    "tokens": lambda folder: of_tokens(folder, sk.RandomSampler(seed=3)),
    "tokens in blocks": lambda folder: of_tokens(folder, blocks(), tail="ragged"),
    "tokens in blocks of a ledger": lambda folder: of_tokens(
        folder, blocks(ledger(sk.RandomSampler(seed=3), sk.Edit(at=8, skip=2))), tail="ragged"
    ),
}


class Rotated(torch.utils.data.Sampler[int]):
    """Another order for each epoch that is set; counts nothing."""

    epoch = 0

    def __len__(self) -> int:
        return SIZE

    def __iter__(self) -> Iterator[int]:
        return ((index + 5 * self.epoch) % SIZE for index in range(SIZE))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def item_ids(item: Any) -> list[int]:
    """The ids of what a reader handed out in one step."""
    if isinstance(item, int):
        return [item]
    return ids_of(item) if isinstance(item[0], list) else as_list(item)


def epoch_of(reader: Any) -> list[list[int]]:
    """What an iteration gives, to its end."""
    return [item_ids(item) for item in reader]


def begin_epoch(reader: Any, epoch: int) -> None:
    """Sets the epoch of readers that do not count epochs."""
    if isinstance(reader, DistributedSampler) or "Sharded" in type(reader).__name__:
        reader.set_epoch(epoch)


def saved_in_epoch(make: Callable[[], Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Gives the states that a reader saves in its second epoch, by when they are saved."""
    steps = len(epoch_of(make()))
    for when, count in (("at the beginning", 0), ("in the middle", steps // 2), ("at the last step", steps)):
        reader = make()
        begin_epoch(reader, 0)
        epoch_of(reader)
        begin_epoch(reader, 1)
        items = iter(reader)
        for _ in islice(items, count):
            pass
        yield when, reader.state_dict()
        del items
    reader = make()
    for epoch in range(2):
        begin_epoch(reader, epoch)
        epoch_of(reader)
    yield "after the end", reader.state_dict()


def continue_from(make: Callable[[], Any], state: dict[str, Any]) -> list[list[list[int]]]:
    """What a new reader reads from a state on: the rest of the epoch, and the next one."""
    reader = make()
    reader.load_state_dict(state)
    return [epoch_of(reader), epoch_of(reader)]


def main() -> int:
    """Writes the file, one state a line, unless it exists."""
    if FILE.exists():
        sys.stderr.write(f"{FILE} is frozen and stays as it is\n")
        return 1
    lines = []
    for kind, make_in in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            make = partial(make_in, Path(folder))
            for when, state in saved_in_epoch(make):
                case = {"kind": kind, "when": when, "state": state}
                lines.append(json.dumps({**case, "goes on with": continue_from(make, state)}))
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
