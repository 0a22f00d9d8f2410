"""Files of a catalogue that are cut or damaged are an error that names them."""

from __future__ import annotations

import os
from pathlib import Path

import samplerkit as sk
from samplerkit.storage.catalogue.making import make_catalogue
from tests.storage.formats import test_parquet
from tests.testing import test_contract as of_files

WRITTEN_NS = 1_700_000_000 * 10**9


class OfCatalogue:
    """The same files, and a catalogue of them.

    All have the same time of change, so that damage shows in the size, the digest or the content.
    """

    suffix = ""
    reader: str | None = None

    def write(self, folder):
        files = super().write(folder)
        self._set_times(folder)
        make_catalogue(f"{folder}/*{self.suffix}", f"{folder}/all.skcat", self.reader)
        return files

    def make(self, folder):
        self._set_times(folder)
        return self.opened(f"{folder}/all.skcat")

    def victim(self, folder):
        return max(Path(folder).glob(f"*{self.suffix}"), key=lambda path: path.stat().st_size)

    def _set_times(self, folder):
        for path in Path(folder).glob(f"*{self.suffix}"):
            os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))


class TestParquet(OfCatalogue, test_parquet.TestParquet):
    """Row groups: footers are read when the first of their file is."""

    suffix = ".parquet"

    def opened(self, path):
        return sk.ParquetDataset(path)


class TestFiles(OfCatalogue, of_files.TestFiles):
    """Files with a reader."""

    suffix, reader = ".npy", "npy"

    def opened(self, path):
        return sk.FileDataset(path, "npy")


class TestShards(OfCatalogue, of_files.TestShards):
    """Tar shards, whose indexes are made when they are opened."""

    suffix = ".tar"

    def opened(self, path):
        dataset = sk.TarDataset(path, checksums=True, progress=False)
        return dataset.decode().to_tuple("json").map(of_files._first)


_OF_DAMAGE = {
    "test_damaged_data_raises_an_error_that_names_the_file",
    "test_truncated_or_missing_data_raises_an_error_that_names_the_file",
}
assert {*of_files.LAWS} > _OF_DAMAGE  # the others test the dataset, which is the one of the files
for _law in {*of_files.LAWS} - _OF_DAMAGE:
    for _contract in (TestParquet, TestFiles, TestShards):
        setattr(_contract, _law, None)
