"""Makes one catalogue of all files with Spark.

python docs/examples/catalogue_on_spark.py "/data/train/*.parquet" /data/train.skcat
spark-submit docs/examples/catalogue_on_spark.py "s3://bucket/{000000..099999}.tar" s3://bucket/train.skcat

If it is stopped, run the same command again: finished parts are kept. A part gets its final name when it is
complete. Executors need this package and the credentials of the store; paths must be the same everywhere.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
from functools import partial

from pyspark.sql import SparkSession

from samplerkit.storage.catalogue.making import PART_FILES, join_parts, make_part, parts_of


def main() -> None:
    """Makes the parts on the cluster, and joins them locally."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("out")
    parser.add_argument("--reader")
    parser.add_argument("--part-files", type=int, default=PART_FILES)
    args = parser.parse_args()
    spark = SparkSession.builder.appName("catalogue").getOrCreate()
    listed = parts_of(args.files, args.part_files)
    tasks = spark.sparkContext.parallelize(listed, numSlices=len(listed))
    finished = tasks.map(partial(make_part, folder=f"{args.out}.parts", reader=args.reader)).collect()
    whole = join_parts(finished, args.out)
    print(f"{args.out}: {int(whole.samples.sum())} samples in {whole.num_files} files")


if __name__ == "__main__":
    main()
