"""Hypothesis strategies: layouts, and every legal chain of samplers over them.

`chains()` draws a `Case`, which builds its sampler for each shard.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hypothesis import strategies as st

from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Shuffle
from samplerkit.order.order import Order
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import RunConstants
from samplerkit.samplers.mixing.edit import Edit
from samplerkit.samplers.mixing.ledger import Ledger
from samplerkit.samplers.mixing.mixture import MixtureSampler
from tests.testing import links
from tests.testing.links import MAX_SAMPLES, MAX_SHARDS, Links, SamplerCall, legal_modes, seeds

DEEPEST = 4


@dataclass(frozen=True)
class Case:
    """A chain over a dataset in an epoch.

    Args:
        links: the samplers, the one that reads the dataset first.
        dataset: a layout or a number of samples.
        epoch: the epoch.
        num_shards: of the outermost distributed sampler, or of the world.
        by_world: whether the world of the job is passed to the order.
    """

    links: tuple[SamplerCall, ...]
    dataset: Any
    epoch: int
    num_shards: int = 1
    by_world: bool = False

    @property
    def layout(self) -> Layout:
        """The layout of the dataset."""
        return Layout.of(self.dataset)

    @property
    def dealer(self) -> int | None:
        """The depth of the outermost distributed sampler."""
        return max((depth for depth, link in enumerate(self.links) if link.is_distributed), default=None)

    @property
    def deals_at_the_root(self) -> bool:
        """Whether no distributed sampler deals below the root."""
        return self.dealer in {None, len(self.links) - 1}

    @property
    def offset(self) -> int:
        """The offset of the deal."""
        return -1 if self.dealer is None else self.links[self.dealer].arguments["offset"]

    @property
    def shards(self) -> range:
        """All shards."""
        return range(self.num_shards)

    def sampler(self, shard: int = 0) -> Sampler:
        """Builds the chain again, for one shard."""
        root: Any = None
        for depth, link in enumerate(self.links):
            has_shard = link.arguments.get("shard_id") is not None
            parent = link.build(shard_id=shard) if depth == self.dealer and has_shard else link.build()
            parent.add_child(root)
            root = parent
        sampler: Sampler = root
        return sampler

    def world(self, shard: int) -> World | None:
        """Returns the world with which a shard makes its order."""
        return World(self.num_shards, shard) if self.by_world else None

    def order(self, shard: int = 0) -> Order:
        """Returns the order of a shard."""
        return self.sampler(shard).order(self.dataset, self.epoch, world=self.world(shard))

    def constants(self, shard: int = 0) -> RunConstants:
        """Returns the constants of the first start, as a shard sees them."""
        return self.sampler(shard).chain.constants(self.world(shard))

    def undealt(self, shard: int = 0) -> Order:
        """Returns the order of all shards, as a shard sees it."""
        sampler = self.sampler(shard)
        return sampler.undealt_order(self.dataset, self.epoch, constants=self.constants(shard))

    def lengths(self) -> list[int]:
        """Returns the lengths of the shards."""
        return [len(self.order(shard)) for shard in self.shards]


epochs = st.integers(0, 5)


def layouts() -> st.SearchStrategy[Layout]:
    """Layouts of files, empty ones and none at all included."""
    sizes = st.sampled_from([3, 0, 1, 2, 5, 7])
    few, many = st.lists(sizes, max_size=2), st.lists(sizes, min_size=3, max_size=6)
    return (few | many).map(Layout)


def datasets() -> st.SearchStrategy[Any]:
    """Numbers of samples and layouts of files."""
    return st.sampled_from(range(MAX_SAMPLES + 1)) | layouts()


Makers = list[Callable[[], links.Calls]]
"""Functions that make the calls of a sampler: of all that are legal at a place, only one is called."""


def _of_parts(case: Case, below: Layout, lengths: set[int]) -> Makers:
    """Samplers that repeat samples, or read a part of them, as far as they are legal here."""
    choices: Makers = [links.repeat_link]
    if len(lengths) == 1 and min(lengths) > 0:
        choices += [partial(links.repeat_factor_link, min(lengths))]
    if (below.has_files or not case.links) and len(below):
        choices += [partial(links.window_link, int(below.sizes.max()))] * (1 + 2 * below.has_files)
    makes = [link.make for link in case.links]
    if all(getattr(make, "is_fixed", False) for make in makes) and len(below) > 1:
        is_repeated = bool(makes) and case.undealt().num_passes > 1
        choices += [] if is_repeated else [partial(links.fold_link, below, len(case.layout))]
    return choices


def links_above(case: Case, lengths: set[int], *, is_root: bool) -> st.SearchStrategy[SamplerCall]:
    """The samplers that are legal above a chain whose shards have these lengths."""
    is_leaf, smallest = not case.links, min(lengths)
    below = case.layout
    if not is_leaf:
        # An order may know files: those of a child that its sampler reads in storage order.
        keeps_files = case.dealer is None and case.sampler().yields_files
        below = case.undealt().layout if keeps_files else Layout(smallest)
    has_files = is_leaf or below.has_files
    modes = links.legal_modes(of_files=below.has_files, is_leaf=has_files, is_root=is_root)
    times = 2 + is_leaf + 6 * (below.has_files and not is_leaf)
    choices: Makers = [partial(link, modes) for link in (links.distributed_link, links.random_link)] * times
    choices += [
        partial(links.distributed_link, modes),
        links.user_link,
        *[partial(links.sequential_link, smallest)] * 2,
        *_of_parts(case, below, lengths),
    ]
    if smallest > 0:
        of_ids = (links.subset_link, links.subset_random_link, links.weighted_link, links.iter_link)
        choices += [partial(link, smallest) for link in of_ids]
    if len(case.layout) > 0:
        choices += [partial(links.pk_link, len(case.layout))]
    if is_leaf and case.layout.has_files:
        # Above other samplers it reads the dataset itself, in their order over its blocks.
        sizes = case.layout.sizes.tolist()
        choices += [partial(links.block_link, sizes)]
        choices += [partial(links.mixture_link, sizes)] * (2 * (len(case.layout) > 0))
    return st.sampled_from(choices).flatmap(lambda link: link())


@st.composite
def chains(draw: st.DrawFn) -> Case:
    """Every legal chain of samplers, of every class with every argument, over a small dataset."""
    case = Case((), draw(datasets()), draw(epochs))
    depth = draw(st.integers(1, DEEPEST))
    for level in range(depth):
        lengths = {len(case.layout)} if level == 0 else {*case.lengths()}
        link = draw(links_above(case, lengths, is_root=level == depth - 1))
        num_shards = link.arguments["num_shards"] if link.is_distributed else case.num_shards
        case = replace(case, links=(*case.links, link), num_shards=num_shards)
    return in_a_world(draw, case)


def in_a_world(draw: st.DrawFn, case: Case) -> Case:
    """Lets a distributed sampler leave its numbers to the job, or deals a chain that has none."""
    if not draw(st.booleans()):
        return case
    if case.dealer is None:
        return replace(case, num_shards=draw(st.integers(1, MAX_SHARDS)), by_world=True)
    omitted = draw(st.sampled_from([(), ("num_shards",), ("shard_id",), ("num_shards", "shard_id")]))
    dealer = case.links[case.dealer]
    dealer = replace(dealer, arguments={**dealer.arguments, **dict.fromkeys(omitted)})
    changed = (*case.links[: case.dealer], dealer, *case.links[case.dealer + 1 :])
    return replace(case, links=changed, by_world=True)


_NAMES = ("web", "code", "books")
_LATEST = 40
_SHARES = [1.0, 3.0, 0.5, 7, 0]


def _leaves() -> st.SearchStrategy[Layout]:
    files = st.lists(st.sampled_from([3, 2, 5, 1, 0]), min_size=2, max_size=4).filter(any).map(Layout)
    return st.sampled_from([True, True, False]).flatmap(
        lambda of_files: files if of_files else st.sampled_from([6, 4, 1]).map(Layout)
    )


@st.composite
def tree_layouts(draw: st.DrawFn, *, is_nested: bool = True) -> Layout:
    """Layouts of parts with names, of which the last may have parts itself."""
    names = _NAMES[: draw(st.integers(2, 3))]
    parts: dict[str, Any] = {name: draw(_leaves()) for name in names}
    if is_nested and draw(st.booleans()):
        parts[names[-1]] = draw(tree_layouts(is_nested=False))
    return Layout.tree(parts)


@st.composite
def _chain(draw: st.DrawFn, layout: Layout) -> Links:
    """A chain of one or two samplers that may read a part: its passes have one length."""
    size, has_files = len(layout), layout.has_files
    modes = legal_modes(of_files=has_files, is_leaf=True, is_root=False) + 3 * [Shuffle.PARTIAL]
    lists = [links.sequential_link(size), links.subset_link(size), links.subset_random_link(size)]
    first = draw(st.one_of(links.random_link(modes), links.random_link(modes), *lists, links.repeat_link()))
    if first.arguments.get("shuffle") is Shuffle.PARTIAL or draw(st.booleans()):
        return (first,)
    if has_files and draw(st.booleans()):
        # The sampler above may use the files of the windows.
        windows = draw(links.window_link(int(layout.sizes.max())))
        windows = replace(windows, arguments={**windows.arguments, "num_samples": None})
        return windows, draw(links.random_link([Shuffle.FILES, Shuffle.INFILE, Shuffle.GLOBAL]))
    return first, draw(links.random_link([Shuffle.GLOBAL]) | links.repeat_link())


def _whole(layout: Layout) -> st.SearchStrategy[Links]:
    """A chain that reads all samples of a part in each pass: ids can leave it."""
    modes = legal_modes(of_files=layout.has_files, is_leaf=True, is_root=True)
    every = {"replacement": False, "num_samples": None}
    drawn = links.random_link(modes)
    return drawn.map(lambda link: (replace(link, arguments={**link.arguments, **every}),))


@st.composite
def mixture_of_parts(
    draw: st.DrawFn, layout: Layout, *, runs_on: bool = False, is_whole: bool = False
) -> SamplerCall:
    """A `MixtureSampler` of the parts of a tree; `runs_on` and `is_whole` as edits need it."""
    sources: dict[str, Links | None] = {}
    for name, part in layout.parts.items():
        if part.parts:
            sources[name] = (draw(mixture_of_parts(part, runs_on=is_whole, is_whole=is_whole)),)
        else:
            sources[name] = draw(st.none() | (_whole(part) if is_whole else _chain(part)))
    stop = draw(st.sampled_from(["first", "all"] if runs_on else ["first", "all", "once"]))
    arguments = {
        "sources": sources,
        "weights": None if stop == "once" else draw(st.none() | _weights(sources)),
        "num_samples": draw(st.none() | st.integers(1, _LATEST)),
        "shuffle": draw(st.booleans()),
        "passes": draw(st.sampled_from(["run_on"] if runs_on else ["run_on", "restart"])),
        "stop": stop,
        "lanes": draw(st.none() | st.integers(1, 3)),
        "seed": draw(seeds),
    }
    return SamplerCall(MixtureSampler, arguments)


def _weights(sources: Mapping[str, Any]) -> st.SearchStrategy[dict[str, float]]:
    shares = st.fixed_dictionaries({name: st.sampled_from(_SHARES) for name in sources})
    return shares.filter(lambda drawn: any(drawn.values()))


def _removable(layout: Layout) -> list[int]:
    """All ids but the first one of each part: without them, none is empty."""
    ids: list[int] = []
    begin = 0
    for _, leaf in layout.leaves:
        ids += range(begin + 1, begin + len(leaf))
        begin += len(leaf)
    return ids


@st.composite
def _edits(draw: st.DrawFn, layout: Layout, mixture: SamplerCall | None, *, is_whole: bool) -> list[Edit]:
    """Edits by position: of a mixture also weights, and if all samples are read also removed ids."""
    kinds = ["skip", "global_batch"]
    kinds += 3 * ["weights"] if mixture is not None else []
    removable = _removable(layout) if is_whole else []
    kinds += 4 * ["without"] if removable else []
    edits = []
    is_set: set[tuple[int, str]] = set()  # a value from a position on is set there once
    for at in sorted(draw(st.lists(st.integers(0, _LATEST), max_size=6))):
        values: dict[str, st.SearchStrategy[Any]] = {
            "skip": st.integers(1, 9),
            "global_batch": st.integers(1, 9),
            "weights": _weights(mixture.arguments["sources"]) if mixture is not None else st.nothing(),
            "without": st.lists(st.sampled_from(removable), min_size=1, max_size=3)
            if removable
            else st.nothing(),
        }
        changes = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2, unique=True))
        changes = [kind for kind in changes if (at, kind) not in is_set] or ["skip"]
        is_set |= {(at, kind) for kind in changes if kind in ("weights", "global_batch")}
        edits.append(Edit(at=at, **{kind: draw(values[kind]) for kind in changes}))
    return edits


@st.composite
def ledgers(draw: st.DrawFn) -> Case:
    """A `Ledger` over a mixture of parts or a chain, with edits of every kind that is legal there."""
    layout = draw(tree_layouts())
    is_whole, mixes = draw(st.booleans()), draw(st.sampled_from([True, True, False]))
    runs_on = is_whole or draw(st.booleans())
    mixture = draw(mixture_of_parts(layout, runs_on=runs_on, is_whole=is_whole)) if mixes else None
    if mixture is not None:
        chain: Links = (mixture,)
    else:
        chain = draw(_whole(layout) if is_whole else _chain(layout))
    reweighted = mixture if runs_on else None
    edits = draw(_edits(layout, reweighted, is_whole=is_whole))
    case = Case((*chain, SamplerCall(Ledger, {"edits": edits})), layout, draw(epochs))
    return replace(case, num_shards=draw(st.integers(1, MAX_SHARDS)), by_world=True)


@st.composite
def mixtures(draw: st.DrawFn) -> Case:
    """A `MixtureSampler` over the parts of a tree, nested once, alone or below another sampler."""
    layout = draw(tree_layouts())
    case = Case((draw(mixture_of_parts(layout)),), layout, draw(epochs))
    if draw(st.sampled_from([False, False, True])):
        link = draw(links_above(case, {*case.lengths()}, is_root=True))
        num_shards = link.arguments["num_shards"] if link.is_distributed else 1
        case = replace(case, links=(*case.links, link), num_shards=num_shards)
    return in_a_world(draw, case)


def trees() -> st.SearchStrategy[Case]:
    """Mixtures of parts, and ledgers, over small trees."""
    return mixtures() | ledgers()


def every_link(chain: Links) -> list[SamplerCall]:
    """The samplers of a chain, and those of the sources in it."""
    calls = []
    for link in chain:
        inner = filter(None, (link.arguments.get("sources") or {}).values())
        calls += [link, *(below for source in inner for below in every_link(source))]
    return calls
