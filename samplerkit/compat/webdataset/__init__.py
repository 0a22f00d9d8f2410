"""Drop-ins for webdataset: the same interface, but every sample is read once per epoch."""

from samplerkit.compat.webdataset.dataset import WebDataset
from samplerkit.compat.webdataset.fluent import WebLoader
from samplerkit.compat.webdataset.handlers import (
    DamagedShardError,
    DecodingError,
    EmptyDatasetError,
    FieldError,
    MissingShardError,
    UnreadableShardError,
    ignore_and_continue,
    ignore_and_stop,
    reraise_exception,
    single_node_only,
    split_by_node,
    split_by_worker,
    warn_and_continue,
    warn_and_stop,
)
from samplerkit.compat.webdataset.stages import default_collation_fn, handle_extension
from samplerkit.compat.webdataset.writing import ShardWriter, TarWriter

Dataset = WebDataset
"""webdataset's older name of `WebDataset`."""

__all__ = [
    "DamagedShardError",
    "Dataset",
    "DecodingError",
    "EmptyDatasetError",
    "FieldError",
    "MissingShardError",
    "ShardWriter",
    "TarWriter",
    "UnreadableShardError",
    "WebDataset",
    "WebLoader",
    "default_collation_fn",
    "handle_extension",
    "ignore_and_continue",
    "ignore_and_stop",
    "reraise_exception",
    "single_node_only",
    "split_by_node",
    "split_by_worker",
    "warn_and_continue",
    "warn_and_stop",
]
