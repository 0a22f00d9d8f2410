"""Random datasets and chains of samplers, each with what it must hold by first principles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

import samplerkit as sk
from tests.campaigns.ledgers.model import Got, require


class Numbers:
    """Sample i is (the epoch that the reading process was told, i)."""

    def __init__(self, sizes: int | list[int]) -> None:
        if isinstance(sizes, list):
            self.layout = sk.Layout(sizes)
        self._size = sum(sizes) if isinstance(sizes, list) else sizes
        self._epoch: int | None = None

    def __len__(self) -> int:
        return self._size

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __getitem__(self, index: int) -> tuple[int | None, int]:
        return self._epoch, index


class Expecting(Numbers):
    """Reads whole batches, and only those that it was told to expect."""

    def expect(self, batches: Iterator[Any]) -> None:
        self._expected = batches

    def __getitems__(self, ids: Any) -> list[tuple[int | None, int]]:
        expected = next(self._expected).tolist()
        require(ids.tolist() == expected, f"{expected} were to be expected, and {ids.tolist()} are asked for")
        return [self[index] for index in expected]


@dataclass(frozen=True)
class Content:
    """What an order may hold: at most these ids, or, with `again`, any of them any number of times."""

    ids: tuple[int, ...]
    size: int | None
    again: bool = False

    def limited(self, num_samples: int | None) -> Content:
        """What is left of it below a sampler that takes some of it."""
        if self.size is None or not num_samples:
            return self
        return replace(self, size=min(self.size, num_samples))

    def flaw(self, order: list[int]) -> str | None:
        """What is wrong with an order."""
        if self.size is not None and len(order) != self.size:
            return f"the order has {len(order)} samples and not {self.size}"
        surplus = set(order) - set(self.ids) if self.again else Counter(order) - Counter(self.ids)
        return f"the order holds {surplus} too many" if surplus else None


@dataclass(frozen=True)
class Recipe:
    """A dataset and a chain of samplers over it.

    Args:
        sizes: the number of samples, or of those of each file.
        links: classes with their arguments, the sampler that reads the dataset first.
        content: what the order of an epoch holds, in a run that began on `first_ranks`.
        keeps_ranks: whether the run cannot go on with another number of ranks.
        says_ranks: whether the distributed sampler says the job's numbers by itself.
    """

    sizes: int | list[int]
    links: tuple[tuple[Any, dict[str, Any]], ...]
    content: Content
    first_ranks: int
    keeps_ranks: bool
    says_ranks: bool

    tails = ("pad", "drop", "ragged")
    """What may become of the last step."""

    def options(self, draw: Random) -> dict[str, Any]:
        """Draws what the loaders of a start are told besides: how many samples a rank has in a step."""
        return {"batch_size": draw.choice([1, 2, 3, 4, 5, 8]), "collate_fn": list}

    def dataset(self, *, expecting: bool) -> Numbers:
        """The dataset of one rank."""
        return (Expecting if expecting else Numbers)(self.sizes)

    def got(self, loader: Any, batch: Any, state: dict[str, Any]) -> Got:
        """What a rank got in its last step."""
        last = loader.step - 1
        ids = loader.ids(last).tolist()
        require([index for _, index in batch] == ids, f"{batch} is read, and {ids} told")
        return Got((batch, loader.pads(last).tolist()), state)

    def sampler(self, ranks: int, rank: int) -> sk.Sampler:
        """Builds the chain for one rank of a job."""
        chain = None
        for make, arguments in self.links:
            says = make is sk.DistributedSampler and self.says_ranks
            link = make(**arguments, **({"num_shards": ranks, "shard_id": rank} if says else {}))
            link.add_child(chain)
            chain = link
        return chain

    @property
    def can_be_edited(self) -> bool:
        """Whether the run is edited while it is read."""
        return self.links[-1][0] is sk.Ledger

    def edited(self, edits: tuple[sk.Edit, ...]) -> Recipe:
        """The same, with these edits."""
        return replace(self, links=(*self.links[:-1], (sk.Ledger, {"edits": edits})))

    def order(self, epoch: int) -> list[int]:
        """The whole epoch in a run that began on `first_ranks`, evaluated without a loader."""
        sampler = self.sampler(self.first_ranks, 0)
        constants = sampler.chain.constants(sk.World(self.first_ranks, 0))
        data = sk.Layout(self.sizes) if isinstance(self.sizes, list) else self.sizes
        order = np.asarray(sampler.undealt_order(data, epoch, constants=constants)).tolist()
        flaw = self.content.flaw(order)
        require(flaw is None, f"epoch {epoch}: {flaw}")
        return order


Link = tuple[Any, dict[str, Any], Content]
"""A class with its arguments, and what it leaves of what it draws from."""


def draw_recipe(draw: Random, most_ranks: int) -> Recipe:
    """Draws a dataset and a chain."""
    sizes: int | list[int] = draw.choice([draw.randint(0, 9), draw.randint(4, 40), draw.randint(30, 120)])
    if draw.random() < 0.5:
        sizes = [draw.choice([0, 1, 2, 3, 5, 8, 13]) for _ in range(draw.choice([1, 2, 3, 4, 6, 9]))]
    size = sum(sizes) if isinstance(sizes, list) else sizes
    ranks = draw.randint(1, most_ranks)
    has_parent, deals_below_the_root = draw.random() < 0.35, draw.random() < 0.2
    leaf = Leaf(draw, ranks, sizes if isinstance(sizes, list) else [], has_parent)
    keeps_ranks = has_parent and deals_below_the_root
    *link, content = leaf.link(Content(tuple(range(size)), size), deals=keeps_ranks)
    links = [tuple(link)]
    if has_parent:
        if keeps_ranks:  # what stands above is evaluated on each shard, pads included
            content = Content(content.ids, None, again=True)
        *link, content = Parent(draw, ranks).link(content, deals=not keeps_ranks)
        links.append(tuple(link))
    if size and all(make is not sk.DistributedSampler for make, _ in links) and draw.random() < 0.8:
        content = replace(content, again=True)  # what is skipped makes room for the next pass
        links.append((sk.Ledger, {"edits": ()}))
    return Recipe(sizes, tuple(links), content, ranks, keeps_ranks, draw.random() < 0.25)


class Parent:
    """Draws a sampler that draws from what another one yields.

    Args:
        draw: the source of chance.
        ranks: those of the first start.
    """

    def __init__(self, draw: Random, ranks: int) -> None:
        self._draw, self._ranks = draw, ranks

    def link(self, child: Content, *, deals: bool) -> Link:
        """Draws a sampler over a child; with `deals`, a distributed one is among them."""
        kinds = [self.sequential, self.random, *[self.distributed] * 4 * deals]
        kinds += [self.weighted, self.subset] if child.size else []
        return self._draw.choice(kinds)(child)

    def seed(self) -> int:
        """Draws a seed."""
        return self._draw.randrange(1 << 64)

    def count(self, child: Content) -> int | None:
        """Draws a number of samples."""
        if child.size is None:
            return None
        return self._draw.choice([None, None, None, 0, self._draw.randint(1, child.size + 3)])

    def indices(self, child: Content) -> list[int]:
        """Draws places in a child."""
        return [self._draw.randrange(child.size or 1) for _ in range(self._draw.randint(1, 30))]

    def modes(self) -> list[str]:
        """The shuffle modes that are legal here, besides FALSE."""
        return ["global"]

    def mode(self, *more: str) -> dict[str, Any]:
        """Draws a shuffle mode with its arguments."""
        draw = self._draw
        return {
            "shuffle": draw.choice([*self.modes(), *more]),
            "seed": self.seed(),
            "partial_size": draw.randint(1, 9),
            "pools": draw.randint(1, 2),
            "adaptive_threshold": draw.randint(0, 40),
            "lanes": draw.choice([None, None, draw.randint(1, 6)]),
        }

    def sequential(self, child: Content) -> Link:
        """The first ones, as they stand."""
        count = self.count(child)
        return sk.SequentialSampler, {"num_samples": count}, child.limited(count)

    def random(self, child: Content) -> Link:
        """Some of them, shuffled."""
        count = self.count(child)
        return sk.RandomSampler, {"num_samples": count, **self.mode()}, child.limited(count)

    def distributed(self, child: Content) -> Link:
        """The job's deal; its number of samples counts per shard, and the first start makes a limit of it."""
        count = self._draw.choice(
            [None, None, 0, self._draw.randint(1, (child.size or 9) // self._ranks + 2)]
        )
        offset = self._draw.choice([-1, -1, 0, 1])
        arguments = {"num_samples": count, "offset": offset, **self.mode("false")}
        return sk.DistributedSampler, arguments, child.limited(count and count * self._ranks)

    def subset(self, child: Content) -> Link:
        """Some places, some of them more than once."""
        indices = self.indices(child)
        return sk.SubsetSampler, {"indices": indices}, Content(child.ids, len(indices), again=True)

    def weighted(self, child: Content) -> Link:
        """Draws by weight."""
        places = child.size or 1
        weights = [self._draw.choice([0.0, 0.5, 1.0, 3.0]) for _ in range(self._draw.randint(1, places))]
        weights[self._draw.randrange(len(weights))] = 1.0
        again, positive = self._draw.random() < 0.7, sum(weight > 0 for weight in weights)
        count = (
            self._draw.choice([None, self._draw.randint(1, 40)]) if again else self._draw.randint(1, positive)
        )
        arguments = {"weights": weights, "num_samples": count, "replacement": again, "seed": self.seed()}
        ids = tuple(place for place, weight in enumerate(weights) if weight) if self.reads_ids else child.ids
        return sk.WeightedRandomSampler, arguments, Content(ids, count or places, again or child.again)

    reads_ids = False
    """Whether the places of the child are the ids of samples."""


class Leaf(Parent):
    """Draws a sampler that reads the dataset.

    Args:
        draw: the source of chance.
        ranks: those of the first start.
        files: the sizes of files; none for a dataset without.
        has_parent: whether a sampler will stand above it.
    """

    reads_ids = True

    def __init__(self, draw: Random, ranks: int, files: list[int], has_parent: bool) -> None:
        super().__init__(draw, ranks)
        self._files, self._has_parent = files, has_parent

    def link(self, child: Content, *, deals: bool) -> Link:
        """Draws a sampler over the dataset; with `deals`, it is a distributed one."""
        if deals:
            return self.distributed(child)
        kinds = [self.sequential, *[self.random] * 3, *[self.distributed] * 5 * (not self._has_parent)]
        if child.size:
            kinds += [self.weighted, self.subset, self.subset_random, self.pk, self.iter, self.replacement]
            kinds += [self.mixture] * 2 if self._files else []
        return self._draw.choice(kinds)(child)

    def modes(self) -> list[str]:
        """Files are known here, and PARTIAL may stand alone."""
        of_files = ["files", "infile"] * 2 if self._files else []
        return ["global", "adaptive", *of_files, *["partial"] * 3 * (not self._has_parent)]

    def sequential(self, child: Content) -> Link:
        """From some sample on."""
        start = self._draw.randrange(child.size) if child.size and self._draw.random() < 0.3 else None
        count = self.count(child)
        ids = child.ids[start or 0 :][: count or None]
        return sk.SequentialSampler, {"start_index": start, "num_samples": count}, Content(ids, len(ids))

    def replacement(self, child: Content) -> Link:
        """Draws of all samples."""
        arguments = {"replacement": True, "num_samples": self.count(child), "seed": self.seed()}
        return sk.RandomSampler, arguments, Content(child.ids, None, again=True)

    def subset(self, child: Content) -> Link:
        """Chosen ids, as they are listed."""
        return self._chosen(sk.SubsetSampler, "indices", child)

    def subset_random(self, child: Content) -> Link:
        """Chosen ids, shuffled."""
        return self._chosen(sk.SubsetRandomSampler, "indices", child, seed=self.seed())

    def iter(self, child: Content) -> Link:
        """Ids from an iterable."""
        return self._chosen(sk.IterSampler, "sampler", child)

    def _chosen(self, make: Any, name: str, child: Content, **seed: int) -> Link:
        indices, count = self.indices(child), self.count(child)
        ids = tuple(indices[: count or None])
        return make, {name: indices, "num_samples": count, **seed}, Content(ids, len(ids))

    def pk(self, child: Content) -> Link:
        """Some samples of each class."""
        arguments = {"num_val": self._draw.randint(1, 4), "shuffle": self._draw.random() < 0.5}
        labels = [self._draw.randint(0, 3) for _ in child.ids]
        arguments |= {"labels": labels, "seed": self.seed()}
        return sk.PKSampler, arguments, Content(child.ids, None, again=True)

    def mixture(self, child: Content) -> Link:
        """The files mixed, each sample once or by weights."""
        arguments = {"seed": self.seed(), "shuffle": self._draw.random() < 0.7}
        arguments |= {"stop": self._draw.choice(["first", "all"])}
        if self._draw.random() < 0.3:
            return sk.MixtureSampler, {**arguments, "stop": "once"}, child
        weights = [self._draw.choice([1.0, 2.0, 0.5]) if size else 0.0 for size in self._files]
        count = self._draw.choice([None, self._draw.randint(1, 60)])
        arguments |= {"weights": weights, "num_samples": count}
        return sk.MixtureSampler, arguments, Content(child.ids, count, again=True)
