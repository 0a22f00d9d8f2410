"""The side stream of a device, its events and waits, which order all copies and computation."""

import contextlib
import functools
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, Literal

import torch

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order import arguments

BLOCKING = ("cpu", "mps", "meta")
"""Devices without a side stream. On mps, copies from pageable memory that do not block corrupt silently."""

PinMemory = Literal["auto"] | bool
"""Whether batches are pinned before they are copied; "auto" pins for devices that gain by it."""


class Streams:
    """One side stream of a device, events, and the host's waits.

    This class is for the cpu and for mps, and has nothing to order: it moves within the calling thread, and
    returns when that is done. Callers treat events and streams as opaque values.

    Args:
        device: where to. Tensors that are on it are not copied.

    Attributes:
        pins: whether copies from pinned memory are worth the pinning.
    """

    pins: bool = False

    def __init__(self, device: torch.device) -> None:
        self._device: Final = device

    def enter_thread(self) -> None:
        """Makes the device the current one of the calling thread."""

    def pin(self, leaf: Any) -> Any:
        """Returns a leaf in pinned memory, for the accelerator that there is, or as it is."""
        return pinned(leaf)

    def side(self, sources: Iterable[Any]) -> AbstractContextManager[Any]:
        """Makes the side stream the current one.

        Args:
            sources: what will be copied; the side stream waits for work of this thread that makes it.
        """
        return contextlib.nullcontext()

    def copy(self, leaf: Any) -> Any:
        """Allocates and begins to copy a leaf, on the side stream."""
        return move(leaf, self._device, non_blocking=False)

    def receive(self, ready: Any, storages: Iterable[Any]) -> Any:
        """Makes the caller's current stream wait for an event, and the allocator know that it uses these.

        Returns:
            The stream.
        """
        return None

    def record_event(self, stream: Any = None) -> Any:
        """Records an event after the work that a stream received so far; None for the current stream."""
        return None

    def is_done(self, event: Any) -> bool:
        """Whether the work before an event is done."""
        return True

    def wait(self, event: Any) -> None:
        """Makes the host wait for an event."""


class DeviceStreams(Streams):
    """The same for a device that computes in streams: cuda, and by the same interface xpu and npu.

    Args:
        device: with its index.
    """

    pins: bool = True

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._module: Final[Any] = torch.get_device_module(device)
        self._side: Final[Any] = self._module.Stream(device=device)

    def enter_thread(self) -> None:
        """Makes the device the current one: else each process would also use the first device."""
        self._module.set_device(self._device)

    def side(self, sources: Iterable[Any]) -> AbstractContextManager[Any]:
        """The context of the device module."""
        if any(isinstance(source, torch.Tensor) and self._is_on_device(source) for source in sources):
            # A loader that works on the device does so on this thread's own stream.
            self._side.wait_stream(self._module.current_stream(self._device))
        context: AbstractContextManager[Any] = self._module.stream(self._side)
        return context

    def copy(self, leaf: Any) -> Any:
        """Begins a copy that does not block."""
        return move(leaf, self._device, non_blocking=True)

    def receive(self, ready: Any, storages: Iterable[Any]) -> Any:
        """`wait_event` and `record_stream`; the host does not wait."""
        stream = self._module.current_stream(self._device)
        stream.wait_event(ready)
        for storage in storages:
            if not isinstance(storage, torch.Tensor) or self._is_on_device(storage):
                storage.record_stream(stream)
        return stream

    def record_event(self, stream: Any = None) -> Any:
        """An event on that stream."""
        try:
            # A host that waits for such an event sleeps, rather than asking again and again.
            event = self._module.Event(blocking=True)
        except TypeError:
            event = self._module.Event()
        event.record(stream)
        return event

    def is_done(self, event: Any) -> bool:
        """Queries the event."""
        return bool(event.query())

    def wait(self, event: Any) -> None:
        """Waits without the interpreter's lock."""
        event.synchronize()

    def _is_on_device(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self._device.type


def streams_for(device: torch.device) -> Streams:
    """Returns the streams of a device, in a process always the same object.

    One side stream serves all loaders of a device, for the process's life: memory that was freed belongs to
    the stream on which it was allocated, and a new stream for every epoch would strand it.

    Raises:
        ArgumentValueError: the device is not available.
    """
    require_available(device)
    if device.type in BLOCKING:
        return Streams(device)
    index = torch.get_device_module(device).current_device() if device.index is None else device.index
    return _device_streams(torch.device(device.type, index))


_device_streams = functools.cache(DeviceStreams)


def current_device() -> torch.device:
    """Returns the accelerator of this process, or the cpu where there is none."""
    if not hasattr(torch, "accelerator"):  # before torch 2.6
        return torch.device(torch._C._get_accelerator())
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if device is None else device


def checked_device(device: Any) -> torch.device:
    """Validates a device or its name, and returns the device.

    Raises:
        ArgumentTypeError: neither.
        ArgumentValueError: no such name.
    """
    if not isinstance(device, torch.device | str):
        raise ArgumentTypeError("device", "must be a torch.device or its name", device)
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ArgumentValueError("device", "is not known to torch", device) from error


def require_available(device: torch.device) -> None:
    """Requires that a device is available.

    Raises:
        ArgumentValueError: it is not.
    """
    if device.type in {"cpu", "meta"} or (device.type == "mps" and torch.backends.mps.is_available()):
        return
    module: Any = getattr(torch, device.type, None)
    if not hasattr(module, "Stream"):
        raise ArgumentValueError("device", "has no streams that torch knows of", str(device))
    if not module.is_available() or (device.index or 0) >= module.device_count():
        hint = f'take "{current_device().type}", which is'
        raise ArgumentValueError("device", "is not available here", str(device), hint=hint)


def pin_policy(pin_memory: Any) -> bool | None:
    """Validates `pin_memory`; returns whether to pin, or None if the device decides.

    Raises:
        ArgumentTypeError: neither a bool nor a string.
        ArgumentValueError: another string, or True where there is no accelerator to pin for.
    """
    if pin_memory is True and current_device().type == "cpu":
        raise ArgumentValueError("pin_memory", "needs an accelerator", True, hint='use "auto"')
    if isinstance(pin_memory, bool):
        return pin_memory
    if not isinstance(pin_memory, str):
        raise ArgumentTypeError("pin_memory", 'must be a bool or "auto"', pin_memory)
    arguments.choice("pin_memory", pin_memory, ("auto",))
    return None


def move(leaf: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """Moves a leaf to a device; objects whose `to` knows no `non_blocking` are moved without."""
    try:
        return leaf.to(device, non_blocking=non_blocking)
    except TypeError:
        return leaf.to(device)


def pinned(leaf: Any) -> Any:
    """Returns a leaf in pinned memory, or the leaf itself where it cannot be pinned or is so already.

    A subclass of Tensor that pinning would turn into a plain one stays as it is.
    """
    is_tensor = isinstance(leaf, torch.Tensor)
    if is_tensor and (leaf.device.type != "cpu" or leaf.layout != torch.strided or leaf.is_pinned()):
        return leaf
    if not callable(getattr(type(leaf), "pin_memory", None)):
        return leaf
    result = leaf.pin_memory()
    is_same_kind = type(result) is type(leaf) if is_tensor else callable(getattr(type(result), "to", None))
    return result if is_same_kind else leaf
