"""A dataset of Hugging Face: its chunks are the layout, its formats and selections are respected.

With the extra `trainers`, which brings datasets: `pytest -m trainers tests/storage/formats`.
"""

from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.testing import DatasetContract
from tests.storage.formats.test_runs import require_resume

datasets = pytest.importorskip("datasets", reason="datasets is not installed: nothing of Hugging Face here")

pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("ignore")]


def load_saved(tmp_path):
    rows = [{"id": id, "label": id % 3, "x": [id / 2] * 4} for id in range(250)]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "saved", num_shards=4)
    return datasets.load_from_disk(str(tmp_path / "saved"))


class TestHuggingFace(DatasetContract):
    """A list of four shards; its own package is responsible for the files."""

    test_truncated_or_missing_data_raises_an_error_that_names_the_file = None
    test_damaged_data_raises_an_error_that_names_the_file = None
    test_a_closed_dataset_has_no_open_files_and_can_be_used_again = None

    def write(self, folder):
        rows = load_saved(Path(folder)).to_list()
        return [rows[:63], rows[63:126], rows[126:188], rows[188:]]

    def make(self, folder):
        return sk.HuggingFaceDataset(datasets.load_from_disk(f"{folder}/saved"))


def test_a_mixture_in_batches_by_tokens_resumes_on_other_ranks(tmp_path):
    require_resume(TestHuggingFace(), str(tmp_path))


def test_its_format_transform_and_selection_are_respected(tmp_path):
    plain = load_saved(tmp_path)
    numbers = sk.HuggingFaceDataset(plain.with_format("numpy"), batches="columns")
    batch = numbers.__getitems__([249, 0])
    assert isinstance(batch["x"], np.ndarray)
    assert batch["id"].tolist() == [249, 0]
    tensors = sk.HuggingFaceDataset(plain.with_format("torch"))
    assert tensors.__getitems__([7])[0]["x"].shape == (4,)
    doubled = sk.HuggingFaceDataset(plain.with_transform(lambda rows: {"id": [2 * id for id in rows["id"]]}))
    assert [sample["id"] for sample in doubled.__getitems__([3, 1])] == [6, 2]
    some = sk.HuggingFaceDataset(plain.select([0, 1, 70, 71, 249]))
    assert (some.layout.sizes.tolist(), some[3]["id"]) == ([2, 2, 1], 71)
    shuffled = sk.HuggingFaceDataset(plain.shuffle(seed=1))
    assert not shuffled.layout.has_files
    assert shuffled.fingerprint != numbers.fingerprint


def test_a_transform_that_loses_rows_is_an_error_and_no_short_batch(tmp_path):
    """Hugging Face itself returns as many samples as there are."""
    dataset = sk.HuggingFaceDataset(load_saved(tmp_path).with_transform(lambda rows: {"id": rows["id"][:1]}))
    assert dataset.__getitems__([3]) == [{"id": 3}]
    with pytest.raises(sk.DatasetError, match="returns 1 samples for 2 rows; let its transform"):
        dataset.__getitems__([3, 4])


@pytest.mark.parametrize("edit", ["concatenated", "interleaved", "sorted", "filtered"])
def test_datasets_edited_by_its_package_are_read_as_it_reads_them(tmp_path, edit):
    plain = load_saved(tmp_path)
    dataset = {
        "concatenated": lambda: datasets.concatenate_datasets(
            [plain.shuffle(seed=2), plain.select(range(7))]
        ),
        "interleaved": lambda: datasets.interleave_datasets([plain, plain]),
        "sorted": lambda: plain.sort("id", reverse=True),
        "filtered": lambda: plain.filter(lambda row: row["label"] == 1),
    }[edit]()
    ids = np.random.default_rng(0).permutation(len(dataset)).tolist()
    ours = sk.HuggingFaceDataset(dataset)
    assert ours.__getitems__(ids) == [dataset[id] for id in ids]
    assert ours.layout.sizes.sum() == len(dataset)


def test_labels_are_read_and_a_stream_is_refused(tmp_path):
    dataset = sk.HuggingFaceDataset(load_saved(tmp_path))
    labels = [dataset[int(id)]["label"] for id in sk.PKSampler(2, seed=1).order(dataset)]
    assert sorted(labels) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(sk.ArgumentTypeError, match="give one split, and no IterableDataset"):
        sk.HuggingFaceDataset(dataset.dataset.to_iterable_dataset())
