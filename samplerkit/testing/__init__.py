"""What a sampler must keep, as tests for ours and for anyone's."""

from samplerkit.testing.contract import SamplerContract

__all__ = ["SamplerContract"]
