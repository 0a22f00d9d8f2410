"""samplerkit: the data order of a training run as a value with random access."""

import typing as _typing

from samplerkit import names as _names

if _typing.TYPE_CHECKING:
    from samplerkit.batches.bucket_batches import BucketBatches as BucketBatches
    from samplerkit.batches.class_batches import ClassBatches as ClassBatches
    from samplerkit.batches.packs.pack_batches import PackBatches as PackBatches
    from samplerkit.batches.recipe import BatchRecipe as BatchRecipe
    from samplerkit.batches.token_batches import TokenBatches as TokenBatches
    from samplerkit.config.config import Config as Config
    from samplerkit.config.config import load_config as load_config
    from samplerkit.config.registry import register_batches as register_batches
    from samplerkit.config.registry import register_sampler as register_sampler
    from samplerkit.errors import ArgumentRangeError as ArgumentRangeError
    from samplerkit.errors import ArgumentTypeError as ArgumentTypeError
    from samplerkit.errors import ArgumentValueError as ArgumentValueError
    from samplerkit.errors import CompositionError as CompositionError
    from samplerkit.errors import ConfigError as ConfigError
    from samplerkit.errors import DatasetError as DatasetError
    from samplerkit.errors import DisagreementError as DisagreementError
    from samplerkit.errors import InverseTooLargeError as InverseTooLargeError
    from samplerkit.errors import NotSupportedError as NotSupportedError
    from samplerkit.errors import OutOfDatasetError as OutOfDatasetError
    from samplerkit.errors import SamplerkitError as SamplerkitError
    from samplerkit.errors import ShuffleModeError as ShuffleModeError
    from samplerkit.errors import StateError as StateError
    from samplerkit.errors import WorkerError as WorkerError
    from samplerkit.errors import WorldError as WorldError
    from samplerkit.loading.collate import PackCollate as PackCollate
    from samplerkit.loading.collate import PadCollate as PadCollate
    from samplerkit.loading.compute_lengths import compute_lengths as compute_lengths
    from samplerkit.loading.device.loader import DeviceLoader as DeviceLoader
    from samplerkit.loading.device.order import order_on as order_on
    from samplerkit.loading.device.tensor_loader import TensorLoader as TensorLoader
    from samplerkit.loading.generators import sample_rng as sample_rng
    from samplerkit.loading.loader import Loader as Loader
    from samplerkit.loading.run.history import History as History
    from samplerkit.loading.torch_sampler import TorchBatchSampler as TorchBatchSampler
    from samplerkit.loading.torch_sampler import TorchSampler as TorchSampler
    from samplerkit.order.deal import World as World
    from samplerkit.order.draws import draw_rng as draw_rng
    from samplerkit.order.layout import Layout as Layout
    from samplerkit.order.modes import Shuffle as Shuffle
    from samplerkit.order.order import Order as Order
    from samplerkit.samplers.base import Sampler as Sampler
    from samplerkit.samplers.block import BlockSampler as BlockSampler
    from samplerkit.samplers.chain import Context as Context
    from samplerkit.samplers.chain import RunConstants as RunConstants
    from samplerkit.samplers.groups import FoldSampler as FoldSampler
    from samplerkit.samplers.groups import PKSampler as PKSampler
    from samplerkit.samplers.mixing.edit import Edit as Edit
    from samplerkit.samplers.mixing.ledger import Ledger as Ledger
    from samplerkit.samplers.mixing.mixture import MixtureSampler as MixtureSampler
    from samplerkit.samplers.repeat import RepeatFactorSampler as RepeatFactorSampler
    from samplerkit.samplers.repeat import RepeatSampler as RepeatSampler
    from samplerkit.samplers.shuffled import DistributedSampler as DistributedSampler
    from samplerkit.samplers.shuffled import RandomSampler as RandomSampler
    from samplerkit.samplers.shuffled import WeightedRandomSampler as WeightedRandomSampler
    from samplerkit.samplers.subset import IterSampler as IterSampler
    from samplerkit.samplers.subset import SequentialSampler as SequentialSampler
    from samplerkit.samplers.subset import SubsetRandomSampler as SubsetRandomSampler
    from samplerkit.samplers.subset import SubsetSampler as SubsetSampler
    from samplerkit.samplers.subset import WindowSampler as WindowSampler
    from samplerkit.storage.files.dataset import FileDataset as FileDataset
    from samplerkit.storage.files.readers import register_reader as register_reader
    from samplerkit.storage.formats.arrays import Hdf5Dataset as Hdf5Dataset
    from samplerkit.storage.formats.arrays import ZarrDataset as ZarrDataset
    from samplerkit.storage.formats.arrow import ArrowDataset as ArrowDataset
    from samplerkit.storage.formats.arrow import HuggingFaceDataset as HuggingFaceDataset
    from samplerkit.storage.formats.jsonl import JsonlDataset as JsonlDataset
    from samplerkit.storage.formats.keyed import LmdbDataset as LmdbDataset
    from samplerkit.storage.formats.litdata import LitDataset as LitDataset
    from samplerkit.storage.formats.mds import MdsDataset as MdsDataset
    from samplerkit.storage.formats.mindrecord import MindRecordDataset as MindRecordDataset
    from samplerkit.storage.formats.parquet.dataset import ParquetDataset as ParquetDataset
    from samplerkit.storage.formats.sqlite import SqliteDataset as SqliteDataset
    from samplerkit.storage.formats.tfrecord import TfRecordDataset as TfRecordDataset
    from samplerkit.storage.remote.options import RemoteOptions as RemoteOptions
    from samplerkit.storage.tar.dataset import TarDataset as TarDataset
    from samplerkit.storage.tar.writer import TarWriter as TarWriter
    from samplerkit.storage.tokens.dataset import TokenDataset as TokenDataset
    from samplerkit.storage.tokens.writer import TokenWriter as TokenWriter
    from samplerkit.storage.tree import TreeDataset as TreeDataset
else:
    # A type checker reads the names above, and does not run this.
    __all__ = list(_names.PUBLIC)

__version__ = "0.1.0"


def __getattr__(name: str) -> _typing.Any:
    """Imports a public name when it is first used, so that orders do not wait for torch."""
    if name not in _names.PUBLIC:
        raise AttributeError(f"module 'samplerkit' has no attribute {name!r}")
    globals()[name] = value = _names.load(_names.PUBLIC[name], name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_names.PUBLIC})
