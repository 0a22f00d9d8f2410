"""Contracts of samplers, file readers and datasets as test classes, for samplerkit's own and for yours."""

from samplerkit.testing.contract import SamplerContract
from samplerkit.testing.dataset_contract import DatasetContract, ReaderContract

__all__ = ["DatasetContract", "ReaderContract", "SamplerContract"]
