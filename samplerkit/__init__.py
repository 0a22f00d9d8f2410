"""samplerkit: the data order of a training run as a value with random access."""

import typing as _typing

from samplerkit import names as _names

if _typing.TYPE_CHECKING:
    from samplerkit.batches.bucket_batches import BucketBatches
    from samplerkit.batches.class_batches import ClassBatches
    from samplerkit.batches.packs.pack_batches import PackBatches
    from samplerkit.batches.recipe import BatchRecipe
    from samplerkit.batches.token_batches import TokenBatches
    from samplerkit.config.config import Config, load_config
    from samplerkit.config.registry import register_batches, register_sampler
    from samplerkit.errors import (
        ArgumentRangeError,
        ArgumentTypeError,
        ArgumentValueError,
        CompositionError,
        ConfigError,
        DatasetError,
        DisagreementError,
        InverseTooLargeError,
        NotSupportedError,
        OutOfDatasetError,
        SamplerkitError,
        ShuffleModeError,
        StateError,
        WorkerError,
        WorldError,
    )
    from samplerkit.loading.collate import PackCollate, PadCollate
    from samplerkit.loading.compute_lengths import compute_lengths
    from samplerkit.loading.device.loader import DeviceLoader
    from samplerkit.loading.device.order import order_on
    from samplerkit.loading.device.tensor_loader import TensorLoader
    from samplerkit.loading.generators import sample_rng
    from samplerkit.loading.loader import Loader
    from samplerkit.loading.run.history import History
    from samplerkit.loading.torch_sampler import TorchBatchSampler, TorchSampler
    from samplerkit.order.deal import World
    from samplerkit.order.draws import draw_rng
    from samplerkit.order.layout import Layout
    from samplerkit.order.modes import Shuffle
    from samplerkit.order.order import Order
    from samplerkit.samplers.base import Sampler
    from samplerkit.samplers.block import BlockSampler
    from samplerkit.samplers.chain import Context, RunConstants
    from samplerkit.samplers.fold import FoldSampler
    from samplerkit.samplers.mixing.edit import Edit
    from samplerkit.samplers.mixing.ledger import Ledger
    from samplerkit.samplers.mixing.mixture import MixtureSampler
    from samplerkit.samplers.pk import PKSampler
    from samplerkit.samplers.repeat import RepeatFactorSampler, RepeatSampler
    from samplerkit.samplers.shuffled import DistributedSampler, RandomSampler
    from samplerkit.samplers.subset import IterSampler, SequentialSampler, SubsetRandomSampler, SubsetSampler
    from samplerkit.samplers.weighted import WeightedRandomSampler
    from samplerkit.samplers.window import WindowSampler
    from samplerkit.storage.files.dataset import FileDataset
    from samplerkit.storage.files.readers import register_reader
    from samplerkit.storage.formats.arrays import Hdf5Dataset, ZarrDataset
    from samplerkit.storage.formats.arrow.dataset import ArrowDataset
    from samplerkit.storage.formats.huggingface import HuggingFaceDataset
    from samplerkit.storage.formats.jsonl import JsonlDataset
    from samplerkit.storage.formats.litdata import LitDataset
    from samplerkit.storage.formats.lmdb import LmdbDataset
    from samplerkit.storage.formats.mds import MdsDataset
    from samplerkit.storage.formats.mindrecord import MindRecordDataset
    from samplerkit.storage.formats.parquet.dataset import ParquetDataset
    from samplerkit.storage.formats.sqlite import SqliteDataset
    from samplerkit.storage.formats.tfrecord import TfRecordDataset
    from samplerkit.storage.remote.options import RemoteOptions
    from samplerkit.storage.tar.dataset import TarDataset
    from samplerkit.storage.tar.writer import TarWriter
    from samplerkit.storage.tokens.dataset import TokenDataset
    from samplerkit.storage.tokens.writer import TokenWriter
    from samplerkit.storage.tree import TreeDataset

__version__ = "0.1.0"

__all__ = [
    "ArgumentRangeError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "ArrowDataset",
    "BatchRecipe",
    "BlockSampler",
    "BucketBatches",
    "ClassBatches",
    "CompositionError",
    "Config",
    "ConfigError",
    "Context",
    "DatasetError",
    "DeviceLoader",
    "DisagreementError",
    "DistributedSampler",
    "Edit",
    "FileDataset",
    "FoldSampler",
    "Hdf5Dataset",
    "History",
    "HuggingFaceDataset",
    "InverseTooLargeError",
    "IterSampler",
    "JsonlDataset",
    "Layout",
    "Ledger",
    "Loader",
    "LitDataset",
    "LmdbDataset",
    "MdsDataset",
    "MindRecordDataset",
    "MixtureSampler",
    "NotSupportedError",
    "Order",
    "OutOfDatasetError",
    "PKSampler",
    "PackBatches",
    "PackCollate",
    "PadCollate",
    "ParquetDataset",
    "RandomSampler",
    "RemoteOptions",
    "RepeatFactorSampler",
    "RepeatSampler",
    "RunConstants",
    "Sampler",
    "SamplerkitError",
    "SequentialSampler",
    "Shuffle",
    "ShuffleModeError",
    "SqliteDataset",
    "StateError",
    "SubsetRandomSampler",
    "SubsetSampler",
    "TarDataset",
    "TarWriter",
    "TensorLoader",
    "TfRecordDataset",
    "TokenBatches",
    "TokenDataset",
    "TokenWriter",
    "TorchBatchSampler",
    "TorchSampler",
    "TreeDataset",
    "WeightedRandomSampler",
    "WindowSampler",
    "WorkerError",
    "World",
    "WorldError",
    "ZarrDataset",
    "compute_lengths",
    "draw_rng",
    "sample_rng",
    "load_config",
    "order_on",
    "register_batches",
    "register_reader",
    "register_sampler",
]


def __getattr__(name: str) -> _typing.Any:
    """Imports a public name when it is first asked for, so that orders do not wait for torch."""
    if name not in _names.PUBLIC:
        raise AttributeError(f"module 'samplerkit' has no attribute {name!r}")
    globals()[name] = value = _names.found(_names.PUBLIC[name], name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
