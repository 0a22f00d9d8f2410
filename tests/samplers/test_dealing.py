"""Dealing, exhaustively: each shard by plain lists, and by the formulas of MindSpore."""

from __future__ import annotations

import samplerkit as sk
from samplerkit.order.algebra import limited
from samplerkit.order.deal import Deal
from tests.samplers.dealing import dealt


def mindspores_shard(n, num_shards, shard, offset, num_samples):
    """The positions of a shard by the formulas of MindSpore's source."""
    if offset < 0:
        length = -(-n // num_shards)
        rows = range(min(length, num_samples or length))
        return [(row * num_shards + shard) % n for row in rows]
    longer = shard < (n + offset) % num_shards
    length = (n + offset) // num_shards + longer - (shard < offset)
    first = 1 if shard < offset else 0
    return [row * num_shards + shard - offset for row in range(first, first + length)]


def deals():
    for num_shards in range(1, 5):
        for offset in range(-1, num_shards + 1):
            for num_samples in (None, 0, 1, 2, 5):
                for shard in range(num_shards):
                    yield num_shards, offset, num_samples, shard


def test_every_way_to_deal_up_to_twelve_samples_to_up_to_four_shards(record_property):
    cases = 0
    for n in range(13):
        order = sk.RandomSampler(seed=7).order(n)
        ids = list(order)
        for num_shards, offset, num_samples, shard in deals():
            deal = Deal(num_shards, shard, offset, num_samples)
            found = list(deal.shard(limited(order, deal.limit(num_shards)), deal.world(None)))
            total = min(n, num_samples * num_shards) if num_samples else n
            assert found == dealt(ids[:total], shard, num_shards, offset)
            if n and (offset < 0 or not num_samples):
                positions = mindspores_shard(n, num_shards, shard, offset, num_samples)
                if offset < 0 and num_samples and total < n:
                    # MindSpore wraps around the dataset, we wrap around the limit: the same without a pad.
                    assert len(positions) * num_shards == total
                assert found == [ids[p] for p in positions]
            sampler = sk.DistributedSampler(num_shards, shard, num_samples=num_samples, offset=offset, seed=7)
            assert list(sampler.order(n)) == found
            cases += 1
    record_property("cases", cases)
    assert cases == 3250
