"""Our own samplers and datasets keep the contracts that we ship, and one that breaks them is found."""

import json
import os
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.testing import DatasetContract, SamplerContract
from tests.order import golden_vectors

RECORDED = {
    case["chain"][0]["sampler"]: case
    for case in sorted(golden_vectors.recorded()["orders"], key=lambda case: -len(sk.Layout(case["layout"])))
    if len(case["chain"]) == 1
}
"""Of each sampler the order of the smallest dataset among the golden vectors: none is missing here."""


@pytest.mark.parametrize("name", RECORDED)
class TestRecorded(SamplerContract):
    """Each sampler that has golden vectors."""

    @pytest.fixture(autouse=True)
    def _of_this_name(self, name):
        case = RECORDED[name]
        self.datasets = (sk.Layout(case["layout"]),)
        self.make = partial(golden_vectors.built, case)


def _edited():
    weights = {"web": 3, "code": 1}
    mixture = sk.MixtureSampler(
        {"web": sk.RandomSampler(shuffle="files", seed=3), "code": None}, 29, weights=weights
    )
    return sk.Ledger(mixture, [sk.Edit(at=9, skip=3), sk.Edit(at=14, weights={"web": 1, "code": 1})])


class TestEdited(SamplerContract):
    """A mixture over the parts of a tree, with edits."""

    datasets = (sk.Layout.tree({"web": sk.Layout([7, 0, 9]), "code": 4}),)
    make = staticmethod(_edited)


class ByProcessState(sk.Sampler):
    """Broken: draws from the process-wide generator."""

    def draw(self, layout, context):
        ids = list(range(len(layout)))
        random.shuffle(ids)
        return ids


class ByCall(sk.Sampler):
    """Broken: another order each time."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def draw(self, layout, context):
        self.calls += 1
        return np.roll(np.arange(len(layout)), self.calls)


class ByLanes(sk.Sampler):
    """Broken: the rank's world changes the order, and a resume does not keep it."""

    def __init__(self):
        super().__init__()
        self.random = random.Random(random.randrange(10**9))

    def draw(self, layout, context):
        return np.roll(np.arange(len(layout)), self.random.randrange(10**6))


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (ByProcessState, "test_equal_samplers_give_equal_orders"),
        (ByProcessState, "test_global_random_state_is_neither_read_nor_changed"),
        (ByCall, "test_equal_samplers_give_equal_orders"),
        (ByLanes, "test_all_shards_are_dealt_from_one_order"),
        (ByLanes, "test_a_resumed_loader_reads_each_position_once"),
    ],
)
def test_a_sampler_that_breaks_a_law_is_found(broken, law):
    contract = SamplerContract()
    contract.make = broken
    with pytest.raises(AssertionError):
        getattr(contract, law)()


class TestFiles(DatasetContract):
    """Files with a reader."""

    def write(self, folder):
        arrays = [np.arange(start, start + size) * 0.5 for start, size in ((0, 7), (7, 0), (7, 12))]
        for number, array in enumerate(arrays):
            np.save(Path(folder, f"{number}.npy"), array)
        return [list(array) for array in arrays]

    def make(self, folder):
        return sk.FileDataset([f"{folder}/{number}.npy" for number in range(3)], "npy", progress=False)

    def lies(self, whole):
        return super().lies(whole)[:2]  # an npy file has no checksum


class TestShards(DatasetContract):
    """Tar shards with checksums: their cache is next to the folder."""

    # Another process imports torch for it, which takes seconds; tests/storage forks one.
    test_a_pickled_dataset_reads_in_another_process = None

    def write(self, folder):
        files = [list(range(6)), list(range(6, 15))]
        for number, samples in enumerate(files):
            with sk.TarWriter(f"{folder}/{number}.tar") as writer:
                for sample in samples:
                    writer.write({"__key__": f"{sample}", "json": sample})
            for index in Path(folder).glob("*.idx*"):
                index.unlink()
        return files

    def make(self, folder):
        pattern = f"{folder}/{{0..1}}.tar"
        cache = f"{folder}/../cache"
        dataset = sk.TarDataset(pattern, cache=cache, checksums=True, progress=False)
        return dataset.decode().to_tuple("json").map(_first)

    def lies(self, whole):
        return super().lies(whole)[1::2]  # zeros are an archive without members


def _first(sample):
    return sample[0]


class Careless:
    """A dataset with one fault."""

    def __init__(self, folder, fault):
        self.path, self.fault = Path(folder, "data.json"), fault
        self.layout = sk.Layout([3, 5 if fault == "long" else 4])
        self.descriptor = None

    def __len__(self):
        return 7

    def __getitem__(self, index):
        if not -7 <= index < 7:
            raise (KeyError if self.fault == "wrong error" else sk.OutOfDatasetError)(
                "index", "outside", index
            )
        return self.__getitems__([index % 7])[0]

    def __getitems__(self, ids):
        if len(ids) and not 0 <= min(ids) <= max(ids) < 7:
            raise sk.OutOfDatasetError("ids", "outside", max(ids))
        try:
            if self.fault == "open" and self.descriptor is None:
                self.descriptor = os.open(self.path, os.O_RDONLY)
            with self.path.open() as file:
                rows = json.load(file)
        except (OSError, ValueError) as error:
            if self.fault == "silent":
                return [0 for _ in ids]
            if self.fault == "raw":
                raise
            raise sk.DatasetError(str(self.path), f"cannot be read ({error})") from error
        ids = sorted(ids) if self.fault == "sorts" else ids
        return [rows[id] for id in ids]

    def __getstate__(self):
        if self.fault == "unsent":
            raise TypeError("cannot be pickled")
        return {**self.__dict__, "descriptor": None}


class OfCareless(DatasetContract):
    """Writes the data of the careless dataset."""

    fault = ""

    def write(self, folder):
        Path(folder, "data.json").write_text(json.dumps([id * id for id in range(7)]))
        return [[0, 1, 4], [9, 16, 25, 36]]

    def make(self, folder):
        return Careless(folder, self.fault)


LAWS = [name for name in dir(DatasetContract) if name.startswith("test_")]

BROKEN = {
    "long": "test_the_layout_has_the_number_of_samples_of_each_file",
    "wrong error": "test_each_id_returns_its_sample_and_other_ids_raise_an_error",
    "sorts": "test_batches_are_read_in_any_order",
    "unsent": "test_a_pickled_dataset_reads_in_another_process",
    "open": "test_a_closed_dataset_has_no_open_files_and_can_be_used_again",
    "silent": "test_truncated_or_missing_data_raises_an_error_that_names_the_file",
    "raw": "test_damaged_data_raises_an_error_that_names_the_file",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_dataset_with_a_fault_is_found(fault):
    contract = OfCareless()
    contract.fault = fault
    datasets = []
    contract.make = lambda folder: datasets.append(Careless(folder, fault)) or datasets[-1]
    with pytest.raises((AssertionError, TypeError)):
        getattr(contract, BROKEN[fault])()
    for descriptor in filter(None, (dataset.descriptor for dataset in datasets)):
        os.close(descriptor)


def test_the_same_dataset_without_a_fault_keeps_the_contract():
    """Except the law that starts another process, which `TestFiles` tests."""
    for law in set(LAWS) - {"test_a_pickled_dataset_reads_in_another_process"}:
        getattr(OfCareless(), law)()
