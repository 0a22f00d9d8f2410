"""How batches cross from a worker process: small tensors in the message, large ones in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np
import torch
import torch.multiprocessing.reductions  # its own reducers are registered first
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

SMALL: Final = 256 << 10
"""Bytes up to which copying through the pipe costs less than shared memory, whose file must be made, handed
over through a socket, and mapped: half as much at this size, the same at about 1 MiB."""


def send_small_tensors() -> None:
    """Lets this worker process send small tensors within its messages.

    What is in shared memory already stays there: somebody may want to share it. All else of a tensor is sent
    as torch does it, so that views of one storage stay views of one.
    """
    ForkingPickler.register(torch.UntypedStorage, _reduced)
    # torch's own makes a batch in shared memory at once.
    if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
        default_collate_fn_map[torch.Tensor] = _stacked


def storage_of(data: bytes) -> torch.UntypedStorage:
    """Makes a storage of its bytes, in the process that receives it."""
    found = torch.empty(len(data), dtype=torch.uint8)
    found.numpy()[:] = np.frombuffer(data, dtype=np.uint8)
    return found.untyped_storage()


def _reduced(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    if storage.device.type != "cpu" or storage.nbytes() > SMALL or storage.is_shared():
        as_before: tuple[Any, ...] = torch.multiprocessing.reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
        return as_before
    content = torch.empty(0, dtype=torch.uint8).set_(storage)
    return storage_of, (content.numpy().tobytes(),)


def _stacked(
    batch: Sequence[torch.Tensor], *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None
) -> torch.Tensor:
    """Stacks small tensors as torch does without workers, and all others as it does in workers."""
    first = batch[0]
    is_small = len(batch) * first.numel() * first.element_size() <= SMALL
    if is_small and type(first) is torch.Tensor and first.layout == torch.strided and not first.is_nested:
        found = torch.stack(tuple(batch))
        if found.dtype == first.dtype and not found.requires_grad:
            return found
    in_shared_memory: torch.Tensor = collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return in_shared_memory
