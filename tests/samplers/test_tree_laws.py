"""The laws over mixtures of parts and over ledgers: those of all chains, and resumes of their runs."""

import random
from collections import Counter
from dataclasses import replace
from functools import cache, partial

import samplerkit as sk
from samplerkit.order.modes import FILE_AWARE
from samplerkit.samplers.chain import RunConstants
from tests.loading.test_edits import ranks_of, read
from tests.numbers import Numbers
from tests.samplers import test_laws
from tests.testing.strategies import every_link, trees


@cache
def drawn():
    """Trees of mixtures with and without edits, drawn once for all laws: of each kind two at least."""
    return test_laws.reaching(trees(), REACHED, most=2)


OF_A_CASE = (
    test_laws.test_no_rank_is_in_the_order,
    test_laws.test_an_order_is_the_same_each_time_it_is_made,
    test_laws.test_every_position_is_found_by_its_id,
    test_laws.test_positions_in_any_sequence_equal_iteration,
    test_laws.test_an_order_is_equal_to_the_order_of_the_same_recipe,
    test_laws.test_the_orders_of_two_epochs_are_equal_only_if_they_hold_the_same_ids,
)
DEALT_AT_THE_ROOT = (
    test_laws.test_each_shard_is_the_dealt_view_of_the_global_order,
    test_laws.test_no_number_of_ranks_is_in_the_order_once_the_run_has_started,
)


def test_the_laws_of_chains_hold_of_mixtures_and_ledgers():
    for case in drawn()[0]:
        for law in (*OF_A_CASE, *(DEALT_AT_THE_ROOT if case.deals_at_the_root else ())):
            law.of_one(case)


# Resumes.


def undealt():
    """The cases that leave the deal to the loader, with edits of orders only."""
    whole = [case for case in drawn()[0] if case.dealer is None]
    return [with_edits(case, lambda edit: edit.global_batch is None) for case in whole]


def with_edits(case, is_kept):
    """A case with some of the edits of its ledger."""
    *below, root = case.links
    if root.make is not sk.Ledger:
        return case
    edits = [edit for edit in root.arguments["edits"] if is_kept(edit)]
    return replace(case, links=(*below, replace(root, arguments={"edits": edits})))


def test_a_run_that_is_cut_anywhere_resumes_on_other_ranks():
    randomly = random.Random(1)
    for case in undealt():
        ranks, others = randomly.randint(1, 3), randomly.randint(1, 3)
        make = partial(ranks_of, Numbers(case.layout), case.sampler(), batch_size=2, tail="ragged")
        first = make(ranks)
        ids, state = read(first, randomly.randrange(len(first[0])))
        rest, _ = read(make(others, state), len(first[0]) * ranks)
        whole = case.sampler().undealt_order(case.layout, constants=RunConstants(ranks))
        assert Counter(ids + rest) == Counter(whole[:].tolist()), case


# The strategy must reach what the laws are about.


def has(**arguments):
    def holds(case):
        return any(
            all(link.arguments.get(name) == value for name, value in arguments.items())
            for link in every_link(case.links)
        )

    return holds


def edits_of(case):
    return case.links[-1].arguments.get("edits", [])


def nested(case):
    return [
        link
        for link in every_link(case.links)
        for chain in sources_of(link)
        for link in chain
        if link.make is sk.MixtureSampler
    ]


def looks_at_files_above_a_child(case):
    chains = [case.links, *(chain for link in every_link(case.links) for chain in sources_of(link))]
    return any(link.arguments.get("shuffle") in FILE_AWARE for chain in chains for link in chain[1:])


def sources_of(link):
    return [chain for chain in (link.arguments.get("sources") or {}).values() if chain is not None]


REACHED = {
    "a ledger": lambda case: case.links[-1].make is sk.Ledger,
    "a ledger of a chain": lambda case: (
        case.links[-1].make is sk.Ledger and case.links[0].make is not sk.MixtureSampler
    ),
    "a mixture in a mixture": nested,
    "a nested one that restarts": lambda case: any(
        link.arguments["passes"] == "restart" for link in nested(case)
    ),
    "a mixture below a sampler": lambda case: (
        case.links[0].make is sk.MixtureSampler and len(case.links) == 2 and not edits_of(case)
    ),
    "files below a parent": looks_at_files_above_a_child,
    **{f"shuffle {mode.value}": has(shuffle=mode) for mode in sk.Shuffle if mode is not sk.Shuffle.FALSE},
    **{f"passes {passes}": has(passes=passes) for passes in ("run_on", "restart")},
    **{f"stop {stop}": has(stop=stop) for stop in ("first", "all", "once")},
    **{
        f"edits with {name}": lambda case, name=name: any(
            getattr(edit, name) is not None for edit in edits_of(case)
        )
        for name in ("weights", "skip", "without", "global_batch")
    },
    "edits with weights and without": lambda case: (
        {"weights", "without"} <= {name for edit in edits_of(case) for name in edit.fields}
    ),
}


def test_the_trees_reach_every_kind_of_mixture_and_edit():
    assert drawn()[1].keys() == REACHED.keys()
