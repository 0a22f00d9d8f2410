"""The modules of the public names and of the algorithms; `load` imports one when it is first needed."""

from importlib import import_module
from typing import Any

from samplerkit import errors

PUBLIC = {
    **{name: "errors" for name in vars(errors) if name.endswith("Error")},
    "ArrowDataset": "storage.formats.arrow",
    "BatchRecipe": "batches.recipe",
    "BlockSampler": "samplers.block",
    "BucketBatches": "batches.bucket_batches",
    "ClassBatches": "batches.class_batches",
    "Config": "config.config",
    "Context": "samplers.chain",
    "DeviceLoader": "loading.device.loader",
    "DistributedSampler": "samplers.shuffled",
    "Edit": "samplers.mixing.edit",
    "FileDataset": "storage.files.dataset",
    "FoldSampler": "samplers.groups",
    "Hdf5Dataset": "storage.formats.arrays",
    "History": "loading.run.history",
    "HuggingFaceDataset": "storage.formats.arrow",
    "IterSampler": "samplers.subset",
    "JsonlDataset": "storage.formats.jsonl",
    "Layout": "order.layout",
    "Ledger": "samplers.mixing.ledger",
    "Loader": "loading.loader",
    "LitDataset": "storage.formats.litdata",
    "LmdbDataset": "storage.formats.keyed",
    "MdsDataset": "storage.formats.mds",
    "MindRecordDataset": "storage.formats.mindrecord",
    "MixtureSampler": "samplers.mixing.mixture",
    "Order": "order.order",
    "PKSampler": "samplers.groups",
    "PackBatches": "batches.packs.pack_batches",
    "PackCollate": "loading.collate",
    "PadCollate": "loading.collate",
    "ParquetDataset": "storage.formats.parquet.dataset",
    "RandomSampler": "samplers.shuffled",
    "RemoteOptions": "storage.remote.options",
    "RepeatFactorSampler": "samplers.repeat",
    "RepeatSampler": "samplers.repeat",
    "RunConstants": "samplers.chain",
    "Sampler": "samplers.base",
    "SequentialSampler": "samplers.subset",
    "Shuffle": "order.modes",
    "SqliteDataset": "storage.formats.sqlite",
    "SubsetRandomSampler": "samplers.subset",
    "SubsetSampler": "samplers.subset",
    "TarDataset": "storage.tar.dataset",
    "TarWriter": "storage.tar.writer",
    "TensorLoader": "loading.device.tensor_loader",
    "TfRecordDataset": "storage.formats.tfrecord",
    "TokenBatches": "batches.token_batches",
    "TokenDataset": "storage.tokens.dataset",
    "TokenWriter": "storage.tokens.writer",
    "TorchBatchSampler": "loading.torch_sampler",
    "TorchSampler": "loading.torch_sampler",
    "TreeDataset": "storage.tree",
    "WeightedRandomSampler": "samplers.shuffled",
    "WindowSampler": "samplers.subset",
    "World": "order.deal",
    "ZarrDataset": "storage.formats.arrays",
    "compute_lengths": "loading.compute_lengths",
    "draw_rng": "order.draws",
    "load_config": "config.config",
    "order_on": "loading.device.order",
    "register_batches": "config.registry",
    "register_reader": "storage.files.readers",
    "register_sampler": "config.registry",
    "sample_rng": "loading.generators",
}
"""The module of each public name."""

ALGORITHMS = {
    "samplerkit-1": ("samplers.chain", "Chain"),
    "mindspore-2.10": ("compat.mindspore.algorithm", "MindSporeChain"),
    "mindspore-2.10-quirks": ("compat.mindspore.algorithm", "QuirkyMindSporeChain"),
}
"""The module of each algorithm, by id, and the class that evaluates its chains."""


def load(module: str, name: str) -> Any:
    """Imports an attribute of a module of the package.

    Example:
        >>> load(*ALGORITHMS["samplerkit-1"]).__name__
        'Chain'
    """
    return getattr(import_module(f"samplerkit.{module}"), name)
