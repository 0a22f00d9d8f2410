"""Where the public names and the algorithms are written, so that each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

PUBLIC = {
    "ArgumentRangeError": "errors",
    "ArgumentTypeError": "errors",
    "ArgumentValueError": "errors",
    "ArrowDataset": "storage.formats.arrow",
    "BatchRecipe": "batches.recipe",
    "BlockSampler": "samplers.block",
    "BucketBatches": "batches.bucket",
    "ClassBatches": "batches.classes",
    "CompositionError": "errors",
    "Config": "config.config",
    "ConfigError": "errors",
    "Context": "samplers.context",
    "DatasetError": "errors",
    "DeviceLoader": "loading.device.loader",
    "DisagreementError": "errors",
    "DistributedSampler": "samplers.distributed",
    "Edit": "samplers.edit",
    "FileDataset": "storage.files.dataset",
    "FoldSampler": "samplers.fold",
    "Hdf5Dataset": "storage.formats.hdf5",
    "HuggingFaceDataset": "storage.formats.huggingface",
    "InverseTooLargeError": "errors",
    "IterSampler": "samplers.iterable",
    "Layout": "order.layout",
    "Ledger": "samplers.ledger",
    "Loader": "loading.loader",
    "LitDataset": "storage.formats.litdata",
    "LmdbDataset": "storage.formats.lmdb",
    "MdsDataset": "storage.formats.mds",
    "MindRecordDataset": "storage.formats.mindrecord",
    "MixtureSampler": "samplers.mixture",
    "NotSupportedError": "errors",
    "Order": "order.order",
    "OutOfDatasetError": "errors",
    "PKSampler": "samplers.pk",
    "PackBatches": "batches.packs",
    "PackCollate": "loading.pack_collate",
    "PadCollate": "loading.pad_collate",
    "ParquetDataset": "storage.formats.parquet",
    "RandomSampler": "samplers.random",
    "RemoteOptions": "storage.remote.options",
    "RepeatFactorSampler": "samplers.repeat",
    "RepeatSampler": "samplers.repeat",
    "RunConstants": "samplers.context",
    "Sampler": "samplers.base",
    "SamplerkitError": "errors",
    "SequentialSampler": "samplers.sequential",
    "Shuffle": "order.shuffle",
    "ShuffleModeError": "errors",
    "SqliteDataset": "storage.formats.sqlite",
    "StateError": "errors",
    "SubsetRandomSampler": "samplers.subset",
    "SubsetSampler": "samplers.subset",
    "TarDataset": "storage.tar.dataset",
    "TarWriter": "storage.tar.writer",
    "TensorLoader": "loading.device.tensor_loader",
    "TfRecordDataset": "storage.formats.tfrecord",
    "TokenBatches": "batches.tokens",
    "TokenDataset": "storage.tokens.dataset",
    "TokenWriter": "storage.tokens.writer",
    "TorchBatchSampler": "loading.torch_sampler",
    "TorchSampler": "loading.torch_sampler",
    "TreeDataset": "storage.tree",
    "WeightedRandomSampler": "samplers.weighted",
    "WindowSampler": "samplers.window",
    "WorkerError": "errors",
    "World": "order.world",
    "WorldError": "errors",
    "ZarrDataset": "storage.formats.zarr",
    "compute_lengths": "loading.sample_lengths",
    "draw_rng": "order.draws",
    "load_config": "config.config",
    "order_on": "loading.device.order",
    "register_batches": "config.batches",
    "register_reader": "storage.files.reader",
    "register_sampler": "config.registry",
    "sample_rng": "loading.worker",
}
"""The module of each public name."""

ALGORITHMS = {
    "samplerkit-1": ("samplers.chain", "Chain"),
    "samplerkit-2": ("samplers.chain", "Chain"),
    "mindspore-2.10": ("compat.mindspore.algorithm", "MindSporeChain"),
    "mindspore-2.10-quirks": ("compat.mindspore.algorithm", "QuirkyMindSporeChain"),
}
"""The module of each algorithm, by its id, and the class that evaluates its chains."""


def found(module: str, name: str) -> Any:
    """Imports what a module of the package holds.

    Example:
        >>> found(*ALGORITHMS["samplerkit-1"]).__name__
        'Chain'
    """
    return getattr(import_module(f"samplerkit.{module}"), name)
