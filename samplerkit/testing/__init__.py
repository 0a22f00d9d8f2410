"""What a sampler, a reader of files and a dataset must keep, as tests for ours and for anyone's."""

from samplerkit.testing.contract import SamplerContract
from samplerkit.testing.dataset_contract import DatasetContract
from samplerkit.testing.reader_contract import ReaderContract

__all__ = ["DatasetContract", "ReaderContract", "SamplerContract"]
