"""Writes the small files that tests read without the packages that wrote them, into tests/data/formats.

`python -m tests.storage.formats.write_samples KIND`, in an environment with the package of that kind:
huggingface (datasets 5.2.0), tfrecord (tensorflow 2.21.0), mds (mosaicml-streaming 0.13.0, pillow 13.0.0),
lmdb (lmdb 3.0.0), litdata (litdata 0.2.76, zstd 1.5), litdata_early (litdata 0.2.30), or mindrecord
(mindspore 2.10.0; the .db that it leaves next to each file is not needed).
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from tests.storage.formats import litdata_chunks, lmdb_store, mindrecord_rows
from tests.storage.formats.mds_shards import COLUMNS, COMPRESSIONS, image_of, row_of
from tests.storage.formats.tf_records import features_of

FOLDER = "tests/data/formats"


def huggingface() -> None:
    """A folder of `save_to_disk`."""
    import datasets  # noqa: PLC0415  # only writing needs it: pytest imports each file for its doctests

    rows = [{"id": id, "text": f"text {id}", "tokens": [id] * (id % 5)} for id in range(250)]
    datasets.Dataset.from_list(rows).save_to_disk(f"{FOLDER}/huggingface", num_shards=2)


def tfrecord() -> None:
    """A plain file, and one that gzip has packed."""
    import tensorflow as tf  # noqa: PLC0415

    def feature(values):  # type: ignore[no-untyped-def]
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    for name, packing in (("plain.tfrecord", None), ("packed.tfrecord.gz", "GZIP")):
        with tf.io.TFRecordWriter(f"{FOLDER}/tfrecord/{name}", packing) as file:
            for row in range(40):
                features = {name: feature(values) for name, values in features_of(row).items()}
                file.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def mds() -> None:
    """A folder for each compression, one with images, and one with a pickle."""
    from streaming import MDSWriter  # type: ignore[import-not-found]  # noqa: PLC0415

    for name, (compression, hashes) in COMPRESSIONS.items():
        out = f"{FOLDER}/mds/{name}"
        with MDSWriter(
            out=out, columns=COLUMNS, compression=compression, hashes=hashes, size_limit=2500
        ) as file:
            for row in range(20):
                file.write(row_of(row))
    kinds = {"pil": "pil", "png": "png", "jpeg": "jpeg", "pngs": "list[png]", "pils": "list[pil]"}
    with MDSWriter(out=f"{FOLDER}/mds/images", columns=kinds, hashes=["sha1"]) as file:
        for row in range(2):
            images = [image_of(row), image_of(row + 1)]
            file.write(dict.fromkeys(("pil", "png", "jpeg"), images[0]) | {"pngs": images, "pils": images})
    with MDSWriter(out=f"{FOLDER}/mds/pickled", columns={"id": "int", "any": "pkl"}, hashes=["sha1"]) as file:
        file.write({"id": 7, "any": {1, 2}})


def litdata() -> None:
    """A folder for each kind of compression, one of tokens, one with an image, and one with a pickle."""
    for name, (packing, make) in litdata_chunks.FOLDERS.items():
        size = 3 if packing == "batch" else None
        _optimized(name, make, compression_level=packing, compression_batch_size=size)
    loader = importlib.import_module("litdata.streaming.item_loader").TokensLoader()
    _optimized("tokens", litdata_chunks.tokens_of, item_loader=loader)


def litdata_early() -> None:
    """Written by a version two years older: the size of chunks in the index leaves out their header."""
    for name, packing in (("early", None), ("early_packed", "chunk")):
        _optimized(name, litdata_chunks.row_of, compression="zstd" if packing else None)


def _optimized(name: str, row_of: Any, **options: Any) -> None:
    writer = importlib.import_module("litdata.streaming.writer")
    Path(f"{FOLDER}/litdata/{name}").mkdir(parents=True)
    options.setdefault("compression", "zstd" if options.get("compression_level") else None)
    file = writer.BinaryWriter(
        f"{FOLDER}/litdata/{name}", chunk_size=4000 if name == "tokens" else 7, **options
    )
    for row in range(20):
        file[row] = row_of(row)
    file.done()
    file.merge()


def mindrecord() -> None:
    """Files of all kinds of columns, and of some; `rows` are two files, the first of two groups."""
    mindspore = importlib.import_module("mindspore.mindrecord")
    for name, (schema, rows) in mindrecord_rows.FILES.items():
        file = mindspore.FileWriter(f"{FOLDER}/mindrecord/{name}", 2 if name == "rows" else 1, overwrite=True)
        file.set_header_size(1 << 14)
        file.set_page_size(1 << 15)
        file.add_schema(schema, "written by write_samples")
        file.write_raw_data(rows)
        file.commit()


def lmdb() -> None:
    """A store whose keys were written, and some overwritten or deleted, in several transactions."""
    import lmdb  # type: ignore[import-not-found]  # noqa: PLC0415

    with lmdb.open(f"{FOLDER}/lmdb", map_size=1 << 20, max_dbs=2, lock=False) as store:
        other = store.open_db(b"other")
        for change in range(4):
            with store.begin(write=True) as writing:
                for row in range(change * 10, change * 10 + 20):
                    writing.put(*lmdb_store.item_of(row), db=other if row % 4 == 3 else None)
                writing.put(b"__len__", b"%d" % change)
        with store.begin(write=True) as writing:
            writing.delete(lmdb_store.item_of(0)[0])


if __name__ == "__main__":
    kinds = (huggingface, tfrecord, mds, lmdb, litdata, litdata_early, mindrecord)
    {kind.__name__: kind for kind in kinds}[sys.argv[1]]()
