"""The commands `samplerkit pack`, `index`, `catalogue` and `lengths`: they prepare files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from samplerkit.cli.opening import ConfigPath, FromOne, FromZero, ManyPaths, import_function
from samplerkit.cli.printing import Result, counted, progress
from samplerkit.config.config import load_config
from samplerkit.config.datasets import with_layout
from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.loading.compute_lengths import compute_lengths
from samplerkit.order import arguments
from samplerkit.storage.catalogue.making import THREADS as JOBS
from samplerkit.storage.catalogue.making import make_catalogue
from samplerkit.storage.files.paths import one_path
from samplerkit.storage.formats.jsonl import JsonlDataset
from samplerkit.storage.formats.tfrecord import TfRecordDataset
from samplerkit.storage.tar.pack import pack_folder
from samplerkit.storage.tar.write_indexes import THREADS, index_shards
from samplerkit.storage.urls import shown

_RECORDS = re.compile(r"\.(jsonl|tfrecord)(-\d+-of-\d+)?(\.gz|\.zst)?$")

SHOWN = 10
"""The most files that were left out, or flaws, that are listed by name."""


def index(
    urls: ManyPaths,
    out: Path | None = None,
    upload: bool = False,
    lengths: str | None = None,
    jobs: FromOne = THREADS,
    checksums: bool = False,
    tfrecord: bool = False,
    jsonl: bool = False,
) -> Result:
    """Write the index of each tar shard, and the lengths of all, so that no job has to make them.

    Existing valid files are kept, so an interrupted run resumes where it stopped.
    Shards at URLs are fetched into the user's cache.

    Options:
        urls: paths or URLs, braces such as train-{000..127}.tar, globs.
        out: the output folder; required for URLs without --upload.
        upload: upload the output next to shards at URLs, into their bucket.
        lengths: the path of the lengths; by default lengths.json next to the shards.
        jobs: shards that are indexed in parallel.
        checksums: store a CRC-32 of each file, to detect damage when it is read.
        tfrecord: the files are TFRecords; write only their indexes.
        jsonl: the files are JSON lines; write only their indexes.
    """
    if tfrecord and jsonl:
        raise typer.BadParameter("conflicts with --jsonl; give one of the two", param_hint="--tfrecord")
    if tfrecord or jsonl:
        for option, value in {"--upload": upload, "--checksums": checksums, "--lengths": lengths}.items():
            if value:
                raise typer.BadParameter("is for tar shards only", param_hint=option)
        return _index_records(urls, out, jsonl=jsonl)
    for url in map(shown, urls):
        if kind := _RECORDS.search(url):
            raise ArgumentValueError("urls", "are not tar shards", url, hint=f"use --{kind[1]}")
    with progress() as report:
        indexed = index_shards(
            urls, out=out, upload=upload, checksums=checksums, threads=jobs, lengths=lengths, progress=report
        )
    flaws = [{"archive": f.archive, "offset": f.offset, "reason": f.reason} for f in indexed.flaws]
    sizes = {"shards": indexed.num_shards, "samples": indexed.num_samples, "files": indexed.num_files}
    result = {**sizes, "made": indexed.num_made, "lengths": indexed.lengths}
    text = _contents(indexed.num_samples, indexed.num_files, indexed.num_shards)
    problems = [f"{flaw.archive}: {flaw.problem}" for flaw in indexed.flaws[:SHOWN]]
    problems += [f"and {len(flaws) - SHOWN} more"] if len(flaws) > SHOWN else []
    result |= {"flaw_count": len(flaws), "flaws": flaws}
    return Result(result, [text], problems, is_failure=bool(indexed.flaws))


def _index_records(paths: list[str], out: Path | None, *, jsonl: bool) -> Result:
    make: Any = JsonlDataset if jsonl else partial(TfRecordDataset, records="bytes")
    with progress() as report, make(paths, progress=report) as dataset:
        count, number = dataset.save_indexes(out), len(dataset.files)
    text = f"{counted(count, 'sample' if jsonl else 'record')} in {counted(number, 'file')}"
    return Result({"files": number, "samples": count}, [text])


def _contents(samples: int, files: int, shards: int) -> str:
    return f"{counted(samples, 'sample')} of {counted(files, 'file')} in {counted(shards, 'shard')}"


def pack(
    source: Annotated[str, typer.Argument()],
    shards: str,
    samples_per_shard: FromOne | None = None,
    bytes_per_shard: FromOne | None = None,
    checksums: bool = False,
    overwrite: bool = False,
) -> Result:
    """Pack a folder of files into tar shards, each with an index file.

    Options:
        source: a folder; files with the same name up to the dot are one sample.
        shards: the shards: out-%06d.tar; or out-{000..007}.tar, for this number of shards of one size; or
            a single tar.
        samples_per_shard: samples in a shard.
        bytes_per_shard: the most bytes of a shard; 1 GiB by default.
        checksums: store a CRC-32 of each file, to detect damage when it is read.
        overwrite: replace existing shards.
    """
    for place, path in (("source", source), ("shards", shards)):
        one_path(place, path, "pack from a local folder into a local folder, and upload that")
    with progress() as report:
        packed = pack_folder(
            source,
            shards,
            samples_per_shard=samples_per_shard,
            bytes_per_shard=bytes_per_shard,
            checksums=checksums,
            overwrite=overwrite,
            progress=report,
        )
    sizes = {"samples": packed.num_samples, "files": packed.num_files}
    text = _contents(packed.num_samples, packed.num_files, len(packed.paths))
    names = ", ".join(packed.left_out[:SHOWN]) + (", ..." if len(packed.left_out) > SHOWN else "")
    left_out = [f"left out, since they are hidden or have no extension: {names}"] if names else []
    return Result({"shards": packed.paths, **sizes, "left_out": packed.left_out}, [text], left_out)


def catalogue(files: ManyPaths, out: Path, reader: str | None = None, jobs: FromOne = JOBS) -> Result:
    """Write one file with what a job needs of each file at its start: size, version, samples, row groups.

    A dataset takes it in place of the files. An interrupted run resumes where it stopped.

    Options:
        files: paths or URLs, braces, globs: tar, Parquet, other files; or catalogues to join.
        out: the path of the catalogue; it ends in .skcat.
        reader: the reader of files that are neither tar nor Parquet: npz, npy, csv, jsonl or text.
        jobs: files that are examined in parallel.
    """
    with progress() as report:
        result = make_catalogue(files, str(out), reader, threads=jobs, progress=report)
    sizes = {"files": result.num_files, "samples": int(result.samples.sum()), "bytes": out.stat().st_size}
    number = counted(result.num_files, "file")
    text = f"{out}: {counted(sizes['samples'], 'sample')} in {number}, {sizes['bytes']:,} bytes"
    return Result({"out": str(out), **sizes}, [text])


def lengths(
    config: ConfigPath,
    out: Path,
    field: str | None = None,
    function: Annotated[str | None, typer.Option(metavar="MODULE:FUNCTION")] = None,
    workers: FromZero = 0,
) -> Result:
    """Compute the length of each sample once; an interrupted run resumes where it stopped.

    Options:
        out: the path of the .npy file.
        field: the field of a sample: a number is the length itself, anything else is measured by its size.
        function: a function that returns the length of a sample.
        workers: worker processes; 0 for none.
    """
    if field is not None and function is not None:
        raise typer.BadParameter("conflicts with --field; give one of the two", param_hint="--function")
    dataset = with_layout(None, load_config(config, check_quality=False).dataset)
    measure: Any = FieldLength(field) if function is None else import_function(function)
    with progress() as report:
        values = compute_lengths(dataset, measure, out, num_workers=workers, progress=report)
    shortest, longest = (int(values.min()), int(values.max())) if values.size else (0, 0)
    mean = float(values.mean()) if values.size else 0.0
    figures = {"samples": len(values), "shortest": shortest, "longest": longest, "mean": mean}
    extent = f"{shortest:,} to {longest:,} long, {mean:,.1f} on average"
    text = f"{out}: {counted(len(values), 'sample')}, {extent}"
    return Result({"out": str(out), **figures}, [text])


@dataclass(frozen=True)
class FieldLength:
    """Measures a field of a sample: a number is the length itself, anything else is measured by `len`.

    So a tar member is measured in bytes, and a text in characters.

    Args:
        field: the name of the field, or its index in a tuple; None for the sample itself.

    Example:
        >>> FieldLength("txt")({"txt": b"abc", "cls": 7}), FieldLength("cls")({"txt": b"abc", "cls": 7})
        (3, 7)
    """

    field: str | None = None

    def __call__(self, sample: Any) -> int:
        """Returns the length.

        Raises:
            DatasetError: there is no such field, or it has fields itself.
            ValueError: samples are tuples, and the field is not an index.
            IndexError: a tuple is shorter.
            TypeError: the field has no length.
        """
        value = sample
        if isinstance(sample, Mapping):
            value = sample.get(self.field, sample)
        elif self.field is not None:
            if not isinstance(sample, tuple | list):
                problem = "is named, but samples have no fields"
                raise DatasetError("field", problem, self.field, hint="leave it out")
            value = sample[int(self.field)]
        if isinstance(value, Mapping):
            hint = f"name a field: {', '.join(sorted(map(str, value)))}"
            raise DatasetError("field", "is not in the sample, or has no length", self.field, hint=hint)
        if hasattr(value, "__index__") and not getattr(value, "ndim", 0):
            return arguments.integer("field", value)
        return len(value)
