"""Writes the small files that tests read without the packages that wrote them, into tests/data/formats.

`python -m tests.storage.formats.write_samples KIND`, in an environment with the package of that kind:
huggingface (datasets 5.2.0) or tfrecord (tensorflow 2.21.0).
"""

from __future__ import annotations

import sys

from tests.storage.formats.tf_records import features_of

FOLDER = "tests/data/formats"


def huggingface() -> None:
    """A folder of `save_to_disk`."""
    import datasets  # noqa: PLC0415  # only who writes them needs it: pytest imports each file for its doctests

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
                told = {name: feature(values) for name, values in features_of(row).items()}
                file.write(tf.train.Example(features=tf.train.Features(feature=told)).SerializeToString())


if __name__ == "__main__":
    {"huggingface": huggingface, "tfrecord": tfrecord}[sys.argv[1]]()
