"""The drop-in for webdataset in torchdata's StatefulDataLoader, and states that do not fit."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.compat.webdataset import WebDataset
from tests.compat.webdataset.shards import as_list, is_even, number_of, numbers, once_each, write


@pytest.mark.parametrize(("workers", "at"), [(0, 1), (2, 5)])
@pytest.mark.parametrize("batched", [False, True])
def test_a_loader_resumes_from_its_state_and_continues_with_the_next_epoch(tmp_path, workers, at, batched):
    urls = write(tmp_path, 3, 50)

    def make():
        dataset = numbers(urls, tmp_path).shuffle(20).select(is_even)
        if batched:
            return StatefulDataLoader(dataset.batched(3, None), batch_size=None, num_workers=workers)
        return StatefulDataLoader(dataset, batch_size=3, num_workers=workers, collate_fn=as_list)

    loader, state, read = make(), None, []
    list(loader)
    for step, batch in enumerate(loader, start=1):
        read.append(batch)
        if step == at:
            state = json.dumps(loader.state_dict(), default=str)
    following = list(loader)
    assert Counter(number for batch in following for number in batch) == once_each(50) - Counter(
        range(1, 50, 2)
    )
    resumed = make()
    resumed.load_state_dict(json.loads(state))
    assert list(resumed) == read[at:]
    assert list(resumed) == following


def test_a_loaded_state_is_returned_until_something_is_read(tmp_path):
    urls = write(tmp_path, 2, 20)
    dataset, loaded = (numbers(urls, tmp_path).shuffle(20) for _ in range(2))
    items = iter(dataset)
    for _ in range(5):
        next(items)
    state = dataset.state_dict()
    list(loaded)
    loaded.load_state_dict(state)
    assert loaded.state_dict() == state
    assert list(loaded) == list(items)


def resume(state, dataset):
    dataset.load_state_dict(state)
    return iter(dataset)


def test_a_state_of_another_run_is_refused(tmp_path):
    urls = write(tmp_path, 3, 30)
    state = numbers(urls, tmp_path).shuffle(20).state_dict()
    list(resume(state, numbers(urls, tmp_path).shuffle(20)))
    write(tmp_path / "other", 3, 30)
    with sk.TarWriter(f"{tmp_path}/x-%d.tar") as writer:
        writer.write({"__key__": "a", "txt": "1"})
    cases = {
        "order": numbers(urls, tmp_path, seed=1).shuffle(20),
        "dataset": numbers(f"{tmp_path}/x-0.tar", tmp_path).shuffle(20),
        "num_shards": numbers(urls, tmp_path, world=sk.World(2, 0)).shuffle(20),
    }
    for field, dataset in cases.items():
        with pytest.raises(sk.StateError, match=field):
            resume(state, dataset)
    same = numbers(urls, tmp_path).shuffle(20)
    for wrong, text in (
        (3, "not the state"),
        ({**state, "schema": 9}, "schema"),
        ({**state, "rows": -1}, "rows"),
    ):
        with pytest.raises(sk.StateError, match=text):
            resume(wrong, same)


def test_resuming_what_cannot_be_resumed_is_an_error_with_the_reason(tmp_path):
    urls = write(tmp_path, 1, 10)
    for dataset, text in (
        (numbers(urls, tmp_path).compose(iter), r"of \.compose"),
        (numbers(urls, tmp_path).listed(3).unlisted(), r"of \.unlisted"),
        (WebDataset(f"pipe:cat {urls}", allow_commands=True).decode().map(number_of), "commands"),
    ):
        state = dataset.state_dict()
        with pytest.raises(sk.StateError, match=text):
            resume(state, dataset)
        # It can be read otherwise, also by a stateful loader.
        loader = StatefulDataLoader(dataset, batch_size=None, num_workers=1)
        assert len(list(loader)) == len(list(dataset))
