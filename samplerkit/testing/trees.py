"""Hypothesis strategies: mixtures of the parts of a tree, and ledgers, which edit what they read.

This module needs Hypothesis, which comes with the extra `test`. `trees()` draws a `Case`, as `chains()` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from samplerkit.order.layout import Layout
from samplerkit.order.modes import Shuffle
from samplerkit.samplers.mixing.edit import Edit
from samplerkit.samplers.mixing.ledger import Ledger
from samplerkit.samplers.mixing.mixture import MixtureSampler
from samplerkit.testing import links
from samplerkit.testing.links import MOST_SHARDS, Links, SamplerCall, legal_modes, seeds
from samplerkit.testing.strategies import Case, epochs, in_a_world, links_above

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
        # Windows are whole files, of which the sampler above may look at.
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
    """Edits in the order of their positions: of a mixture also with weights, of what is whole without ids."""
    kinds = ["skip", "global_batch"]
    kinds += 3 * ["weights"] if mixture is not None else []
    removable = _removable(layout) if is_whole else []
    kinds += 4 * ["without"] if removable else []
    made = []
    held: set[tuple[int, str]] = set()  # what holds from a position on is said there once
    for at in sorted(draw(st.lists(st.integers(0, _LATEST), max_size=6))):
        values: dict[str, st.SearchStrategy[Any]] = {
            "skip": st.integers(1, 9),
            "global_batch": st.integers(1, 9),
            "weights": _weights(mixture.arguments["sources"]) if mixture is not None else st.nothing(),
            "without": st.lists(st.sampled_from(removable), min_size=1, max_size=3)
            if removable
            else st.nothing(),
        }
        said = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2, unique=True))
        said = [kind for kind in said if (at, kind) not in held] or ["skip"]
        held |= {(at, kind) for kind in said if kind in ("weights", "global_batch")}
        made.append(Edit(at=at, **{kind: draw(values[kind]) for kind in said}))
    return made


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
    weighed = mixture if runs_on else None
    edits = draw(_edits(layout, weighed, is_whole=is_whole))
    case = Case((*chain, SamplerCall(Ledger, {"edits": edits})), layout, draw(epochs))
    return replace(case, num_shards=draw(st.integers(1, MOST_SHARDS)), by_world=True)


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
    found = []
    for link in chain:
        inner = (one for one in (link.arguments.get("sources") or {}).values() if one is not None)
        found += [link, *(below for one in inner for below in every_link(one))]
    return found
