"""Two names that MosaicML streaming asks for when it is imported."""

import functools
from typing import Any

import torch


@functools.cache  # which keeps the library as long as the process lives
def declare() -> Any:
    """Declares operators of torchvision, which streaming imports for datasets of images.

    torchvision is built for the CUDA build of torch: with a CPU build its operators are missing, and it
    only asks for the names of two. Nothing here calls them.
    """
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
