"""What raises or logs each message on the page of error messages."""

import json
import os
import signal
import threading
from functools import partial

import numpy as np
import torch

import samplerkit as sk
from samplerkit.loading.agreement import Agreement
from samplerkit.loading.world import detect_world
from tests.chains import under
from tests.docs.damaged_files import (
    changed_file,
    cut_array,
    cut_shard,
    emptied_cache,
    folder_like_a_file,
    gone_shard,
    link_to_no_folder,
    lying_index,
    no_folder,
    other_lengths,
    read_tokens,
    shard_of_nine,
    time_of_no_year,
    tokens,
    zipped,
)
from tests.loading.forged_states import forged
from tests.loading.rings import Rings
from tests.numbers import Made
from tests.storage.crowd import run_in_threads

SIZE, ONE = 40, sk.World(1, 0)


def loader(dataset=SIZE, sampler=None, **options):
    options = {"batch_size": 4, "world": ONE, **options}
    return sk.Loader(
        range(dataset) if isinstance(dataset, int) else dataset, sampler or sk.RandomSampler(), **options
    )


def saved(step=0, **options):
    return loader(**options).state_dict(step=step)


def of_tokens(budget):
    recipe = sk.TokenBatches(budget, lengths=[4] * SIZE)
    return loader(batch_size=None, batches=recipe)


def packed(said):
    recipe = sk.PackBatches(8, lengths=[said] * SIZE)
    return loader([[1] * 5] * SIZE, batch_size=None, batches=recipe)


def packed_for_torch():
    sampler = sk.TorchSampler(sk.RandomSampler(), range(SIZE), ONE)
    sk.TorchBatchSampler(sampler, batches=sk.PackBatches(8, lengths=[3] * SIZE))


def chain(world):
    return {"sampler": under(sk.SequentialSampler(), sk.DistributedSampler()), "world": world}


def in_the_loop():
    begun = loader()
    for _ in begun:
        begun.load_state_dict(saved())


def edited(skip):
    return loader(sampler=sk.Ledger(sk.RandomSampler(), [sk.Edit(at=4, skip=skip)]))


def edit_in_the_loop():
    begun = edited(3)
    for _ in begun:
        begun.edit(at=3, skip=1)


def two_loops():
    shared = loader()
    first = iter(shared)
    next(first)
    next(iter(shared))
    next(first)


def longer_than_said():
    lengths = np.full(SIZE, 4)
    plan = sk.TokenBatches(16, lengths=lengths).plan(sk.RandomSampler(), SIZE)
    ids = plan[0]
    sk.PadCollate(plan=plan).collated([[0] * (length + 1) for length in lengths[ids]], ids)


def of_windows(seq_len, sampler=None):
    data = Rings([48], seq_len, 12)
    return sk.Loader(data, sampler or sk.BlockSampler(2), batch_size=1, world=sk.World(1, 0))


def two_ranks(seeds=(0, 1), world=None):
    """Two ranks with different seeds, or with one shard, in two threads."""
    store = torch.distributed.HashStore()

    def rank(number):
        identity = {"dataset": "40", "sampler": "", "seed": [seeds[number]]}
        Agreement(store, number, 2).require(identity, 30, world=world)

    run_in_threads(partial(rank, 0), partial(rank, 1))


def calling(function):
    """A dataset that calls a function in place of reading a sample."""
    return Made(SIZE, lambda _: function())


def raise_its_own():
    class OwnError(Exception):
        """Nobody can import it."""

    raise OwnError("no sample")


def in_a_worker(dataset, **options):
    """Raises what is raised there, without torch's traceback and the notes."""
    try:
        list(loader(dataset, num_workers=1, **options))
    except sk.DatasetError as error:
        message = str(error).rsplit("DatasetError: ", 1)[1].splitlines()[0]
        raise sk.DatasetError(message) from None


class Stream(torch.utils.data.IterableDataset):
    """Has its order inside."""

    def __iter__(self):
        return iter(range(SIZE))


class DrawsOfWhom:
    """Reads batches, and does not say for which of the ids it draws."""

    def __len__(self):
        return SIZE

    def __getitems__(self, ids):
        return [sk.draw_rng().random() for _ in ids]


def missing_samples(folder):
    told = sk.TarDataset(shard_of_nine(folder), lengths=[10], on_error="skip", cache=folder / "cache")
    list(loader(told, sk.SequentialSampler(), collate_fn=len))


def config(**sections):
    return sk.load_config({"dataset": {"kind": "layout", "sizes": [10, 10]}, **sections})


def newer(**fields):
    """A state as a newer version might save it: whole, its checksum fits."""
    return forged(saved(), **fields)


def planned(folder, **more):
    """The first batch of a config whose file is in a folder."""
    (folder / "run.yaml").write_text(
        f"dataset: {{kind: size, size: {SIZE}}}\nsampler: {{kind: random}}\n"
        f"batches: {json.dumps({'kind': 'tokens', 'max_tokens': 8, **more})}\n"
    )
    sk.load_config(folder / "run.yaml").check_order()


TWO = {"world": sk.World(2, 0)}
TREE = sk.Layout.tree({"a": 30, "b": 10})


def of_mixture(more, **said):
    mix = sk.MixtureSampler({"a": None, "b": None}, SIZE, weights={"a": 3, "b": 1}, **more)
    return sk.Ledger(mix, [sk.Edit(at=4, **said)]).order(TREE)


class Growing(sk.Sampler):
    def draw(self, layout, context):
        return range(5 + context.epoch)


CALLS = {
    "state: dataset": lambda _: loader(41).load_state_dict(saved()),
    "state: sampler": lambda _: loader(sampler=sk.SequentialSampler()).load_state_dict(
        saved(sampler=sk.SequentialSampler(start_index=2))
    ),
    "state: seed": lambda _: loader(sampler=sk.RandomSampler(seed=8)).load_state_dict(saved()),
    "state: tail": lambda _: loader(tail="drop").load_state_dict(saved()),
    "state: num_shards": lambda _: loader(**chain(ONE)).load_state_dict(saved(**chain(sk.World(2, 0)))),
    "state: ids": lambda _: loader(sampler=sk.IterSampler({*range(8)})).load_state_dict(
        saved(step=1, sampler=sk.IterSampler({*range(9)}))
    ),
    "state: checksum": lambda _: loader().load_state_dict({**saved(), "position": 8}),
    "state: schema": lambda _: loader().load_state_dict({**saved(), "schema": 99}),
    "state: lengths": lambda _: loader().load_state_dict(newer(sections={"lengths": {"edits": 1}})),
    "state: ledger: was saved within": lambda _: of_windows(
        2, under(sk.BlockSampler(), sk.Ledger(sk.RandomSampler()))
    ).load_state_dict(of_windows(2, under(sk.BlockSampler(), sk.RandomSampler())).state_dict(step=1)),
    "state: ledger: edit 1": lambda _: edited(3).load_state_dict(edited(4).state_dict(step=2)),
    "at: is before": lambda _: edit_in_the_loop(),
    "edit at ...: weights": lambda _: of_mixture({}, weights={"x": 1}),
    "edit at ...: sets a global": lambda _: next(
        iter(loader(sampler=sk.Ledger(sk.RandomSampler(), [sk.Edit(at=0, global_batch=3)]), **TWO))
    ),
    "edit at ...: changes weights": lambda _: of_mixture({"passes": "restart"}, weights={"a": 1, "b": 1}),
    "edit at ...: removes ids, but": lambda _: sk.Ledger(
        sk.RandomSampler(replacement=True), [sk.Edit(at=4, without=[1])]
    ).order(SIZE),
    "source ...: would": lambda _: of_mixture({}, without=range(30)),
    "edit at ...: removes an id": lambda _: of_mixture({}, without=[SIZE]),
    "weights: lack": lambda _: sk.MixtureSampler({"a": None, "b": None}, weights={"a": 1}),
    "sources: name": lambda _: sk.MixtureSampler({"c": None}).order(TREE),
    "sources...: holds": lambda _: sk.MixtureSampler({"a": sk.DistributedSampler(2, 0)}),
    "source ...: yields": lambda _: sk.MixtureSampler({"a": Growing()}, 200).order(TREE)[:],
    "state: seq_len: differs from the saved state, which": lambda _: of_windows(4).load_state_dict(
        of_windows(2).state_dict(step=1)
    ),
    "state: seq_len: differs from the saved state: saved": lambda _: of_windows(
        4, sk.RandomSampler()
    ).load_state_dict(of_windows(2, sk.RandomSampler()).state_dict(step=1)),
    "state: unit: differs": lambda _: of_tokens(12).load_state_dict(saved()),
    "state: recipe": lambda _: of_tokens(12).load_state_dict(of_tokens(16).state_dict()),
    "state: state: is not": lambda _: loader().load_state_dict({"loader": saved()}),
    "state: position": lambda _: loader(20).load_state_dict(saved(step=9), allow={"dataset"}),
    "state: state: cannot": lambda _: in_the_loop(),
    "ranks: rank": lambda _: two_ranks(),
    "ranks: no rank reads shard": lambda _: two_ranks(seeds=(0, 0), world=sk.World(2, 0)),
    "WORLD_SIZE": lambda _: detect_world({"WORLD_SIZE": "2"}),
    "worker": lambda _: list(loader(calling(partial(os._exit, 3)), num_workers=1)),
    "timeout": lambda _: list(loader(calling(signal.pause), num_workers=1, timeout=1)),
    "dataset: gives a value that cannot": lambda _: in_a_worker(calling(threading.Lock), collate_fn=list),
    "dataset: raised": lambda _: in_a_worker(calling(raise_its_own)),
    "state: iteration": lambda _: two_loops(),
    "shuffle: not": lambda _: sk.RandomSampler(shuffle="files").order(SIZE),
    "RandomSampler.add_child: the shuffle mode of a child": lambda _: under(
        sk.RandomSampler(), sk.RandomSampler(shuffle="partial")
    ),
    "RandomSampler.add_child: the shuffle mode of a sampler": lambda _: under(
        sk.RandomSampler(shuffle="files"), sk.SequentialSampler()
    ),
    "FoldSampler": lambda _: under(sk.FoldSampler(2, 0), sk.RandomSampler()).order(SIZE),
    "WindowSampler": lambda _: under(sk.WindowSampler(2), sk.SubsetSampler([0, 2, 4])).order(SIZE),
    "num_shards": lambda _: under(sk.DistributedSampler(), sk.DistributedSampler()).order(SIZE),
    "dataset: must": lambda _: loader(Stream()),
    "dataset: has neither": lambda _: sk.RandomSampler().order(object()),
    "dataset: has no files": lambda _: next(iter(loader(num_workers=2, file_affinity=True))),
    "shuffle: is": lambda _: loader(shuffle=True),
    "draw_rng": lambda _: sk.draw_rng(),
    "place": lambda _: list(loader(DrawsOfWhom())),
    "seed_draws: would seed the": lambda _: list(loader(seed_draws=True, device="cpu")),
    "seed_draws: would seed gen": lambda _: loader(seed_draws=True, num_workers=2, workers="threads"),
    "lengths: must be": lambda _: sk.TokenBatches(8, lengths=[1.5] * SIZE).plan(sk.RandomSampler(), SIZE),
    "lengths: a batch of": lambda _: longer_than_said(),
    "lengths: a pack of": lambda _: list(packed(1)),
    "batches: hold parts": lambda _: packed_for_torch(),
    "positions_of": lambda _: sk.RandomSampler(replacement=True).order(2**27).positions_of(0),
    "sampler.sed": lambda _: config(sampler={"kind": "random", "sed": 7}),
    "min_quality": lambda _: config(sampler={"kind": "sequential"}, min_quality=0.9),
    "loader.batch_size": lambda _: config(
        sampler={"kind": "random"}, batches={"kind": "tokens", "max_tokens": 8}, loader={"batch_size": 4}
    ),
    "batches.lengths": lambda folder: planned(folder, lengths="no.npy"),
    "batches.max_tokens": lambda folder: planned(folder, lengths=[9] * SIZE),
    "state: ...: function": other_lengths,
    "...: has ... samples": changed_file,
    "...: claims": cut_array,
    "...: truncated": cut_shard,
    "...: cannot be opened": gone_shard,
    "...: is a folder, and": folder_like_a_file,
    "...: is a link": link_to_no_folder,
    "...: cannot be converted": time_of_no_year,
    "...: unpacks": lambda folder: zipped(folder, max_unpacked_bytes=1000),
    "...: does not fit": lambda folder: zipped(folder, max_cache_bytes=1000),
    "cache: has lost": emptied_cache,
    "...: cannot be written": no_folder,
    "...: was changed while it was in use: it had": lambda folder: read_tokens(
        folder, lambda path: os.truncate(path, 3)
    ),
    "...: has ... bytes, but its index": lambda folder: read_tokens(folder, None),
    "...: lists at byte": lambda folder: lying_index(folder).spans(0),
    "...: has no tokens for split=": lambda folder: len(tokens(folder, split="969,30,1", part="test")),
}
"""By the beginning of the message: what raises it."""


LOGGED = {
    "rank ... of ... starts an order": lambda _: Agreement(torch.distributed.HashStore(), 0, 2).require(
        {"dataset": "40"}, 0.05
    ),
    "left out": missing_samples,
}
"""By the beginning of the message: what logs it."""
