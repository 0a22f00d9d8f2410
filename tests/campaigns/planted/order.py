"""Bugs in orders and samplers."""

from tests.campaigns.planting import Bug

LAWS = "tests/samplers/test_laws.py"
DRAWS, MIXED = "tests/order/test_source_draws.py", "tests/samplers/test_mixtures.py"
SHARES = "tests/samplers/test_laws.py"

BUGS = [
    Bug(
        "the inverse takes the digit behind",
        "SourceDraws.row_of",
        "np.count_nonzero(reads <= remaining, axis=0) - 1",
        "np.count_nonzero(reads < remaining, axis=0)",
        DRAWS,
    ),
    Bug(
        "a source begins again when its weight changes",
        "SourceCounts._count_lanes",
        "before - after",
        "-after",
        DRAWS,
    ),
    Bug(
        "a nested mixture has the draws of its root",
        "Blend.mix",
        "path_number(self.context.path)",
        "0",
        "tests/samplers/test_removed_ids.py",
    ),
    Bug(
        "an epoch reads what the one before read",
        "Blend.order",
        "self.context.epoch * self.length",
        "0 * self.length",
        MIXED,
    ),
    Bug(
        "recipes walk chains only",
        "seeds_of",
        "branch._tree()",
        "()",
        f"{MIXED}::test_no_two_recipes_have_one_fingerprint",
    ),
    Bug("a source may be dealt", "require_undealt", "sampler.chain.deal is not None", "False", MIXED),
    Bug(
        "ranks of a mixture resonate",
        "SourceDraws.first_bytes",
        "maps.starts(0, counters)",
        "maps.starts(0, counters * 0)",
        SHARES,
    ),
    Bug(
        "a shard's pads repeat the wrong samples",
        "Shard.read",
        "undealt %= len(self._order)",
        "undealt %= len(self._order) - 1",
        f"{LAWS}::test_each_shard_is_the_dealt_view_of_the_global_order",
    ),
    Bug(
        "the limit is forgotten",
        "Chain._order_to_deal",
        "limited(order, constants.limit)",
        "order",
        f"{LAWS}::test_num_samples_of_a_distributed_sampler_limits_all_shards_together",
    ),
]
