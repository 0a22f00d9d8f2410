"""Runs chains of samplers in MindSpore itself: cases as JSON lines from stdin, their ids to stdout.

It runs in an environment of its own and imports nothing of ours.
"""

import json
import sys
import tempfile
from pathlib import Path

import mindspore.dataset as ds
import numpy as np
from mindspore.mindrecord import FileWriter


class Ids:
    """A source whose rows are their own ids, from `first` on; one-dimensional, as numpy 2 requires."""

    def __init__(self, first, size):
        self.ids = np.arange(first, first + size)

    def __len__(self):
        return self.ids.size

    def __getitem__(self, index):
        return (self.ids[index : index + 1],)


def record_files(folder, sizes):
    """Writes MindRecord files of these sizes, unless they exist."""
    place = folder / "-".join(map(str, sizes))
    paths = [place / f"{number}.mindrecord" for number in range(len(sizes))]
    if not place.exists():
        place.mkdir()
        first = 0
        for path, size in zip(paths, sizes, strict=True):
            writer = FileWriter(str(path), shard_num=1)
            writer.add_schema({"id": {"type": "int64"}}, "ids")
            writer.write_raw_data([{"id": first + row} for row in range(size)])
            writer.commit()
            first += size
    return [str(path) for path in paths]


def image_folder(folder, labels):
    """Makes a folder of images for each class; the bytes of an image are its id."""
    place = folder / ("classes-" + "-".join(map(str, labels)))
    if not place.exists():
        for number, label in enumerate(labels):
            (place / f"class{label}").mkdir(parents=True, exist_ok=True)
            path = place / f"class{label}" / f"{number:04}.jpg"
            path.write_bytes(number.to_bytes(8, "little"))
    return str(place)


def sampler(link):
    """Builds a chain."""
    arguments = dict(link["args"])
    if "shuffle" in arguments and isinstance(arguments["shuffle"], str):
        arguments["shuffle"] = ds.Shuffle[arguments["shuffle"].upper()]
    built = getattr(ds, f"{link['type']}Sampler")(**arguments)
    if link.get("child"):
        built.add_child(sampler(link["child"]))
    return built


def pipeline(case, folder):
    """Builds the dataset of a case with its chain."""
    dataset, chain = case["dataset"], sampler(case["sampler"])
    if dataset["kind"] == "mappable":
        return ds.GeneratorDataset(Ids(0, dataset["n"]), "id", sampler=chain, num_parallel_workers=1)
    if dataset["kind"] == "mindrecord":
        files = record_files(folder, dataset["file_sizes"])
        return ds.MindDataset(files, sampler=chain, num_parallel_workers=1)
    if dataset["kind"] == "labelled":
        images = image_folder(folder, dataset["labels"])
        return ds.ImageFolderDataset(images, sampler=chain, decode=False, num_parallel_workers=1)
    sizes = dataset["parts"]
    parts = [
        ds.GeneratorDataset(Ids(sum(sizes[:number]), size), "id", shuffle=False, num_parallel_workers=1)
        for number, size in enumerate(sizes)
    ]
    # `+` would nest them.
    concatenated = parts[0].concat(parts[1:])
    concatenated.use_sampler(chain)
    return concatenated


def id_of(row):
    """The id of a row, whichever dataset it is of."""
    value = row[0]
    return int.from_bytes(value.tobytes(), "little") if value.dtype == np.uint8 else int(value.reshape(-1)[0])


def read(case, folder):
    """Reads all epochs of a case, or returns the error."""
    ds.config.set_seed(case["seed"])
    try:
        rows = pipeline(case, folder).create_tuple_iterator(num_epochs=case["num_epochs"], output_numpy=True)
        return {"epochs": [[id_of(row) for row in rows] for _ in range(case["num_epochs"])]}
    except Exception as error:  # whatever MindSpore raises is a result here
        return {"error": type(error).__name__, "message": str(error)[:200]}


def main():
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            print("RESULT " + json.dumps(read(json.loads(line), Path(folder))), flush=True)


if __name__ == "__main__":
    main()
