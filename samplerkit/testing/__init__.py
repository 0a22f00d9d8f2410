"""What a sampler and a reader of files must keep, as tests for ours and for anyone's."""

from samplerkit.testing.contract import SamplerContract
from samplerkit.testing.reader_contract import ReaderContract

__all__ = ["ReaderContract", "SamplerContract"]
