"""The driver through which all ordering on a device goes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, final

import torch

from samplerkit.errors import ArgumentValueError
from samplerkit.loading.device.batch import is_leaf, move

BLOCKING = ("cpu", "mps", "meta")
"""Devices without a side stream. On mps, copies from pageable memory that do not block corrupt silently."""


class Streams(Protocol):
    """What a device offers to order copies and computation: one side stream, events, and the host's waits.

    Events and streams are the driver's own; nobody else looks into them.
    """

    @property
    def pins(self) -> bool:
        """Whether copies from pinned memory are worth the pinning."""
        ...

    def enter_thread(self) -> None:
        """Makes the device the current one of the calling thread."""
        ...

    def pin(self, leaf: Any) -> Any:
        """Gives a leaf in pinned memory, or as it is where that cannot be."""
        ...

    def side(self, sources: Iterable[Any]) -> AbstractContextManager[Any]:
        """Makes the side stream the current one.

        Args:
            sources: what will be copied; the side stream waits for work of this thread that makes it.
        """
        ...

    def copy(self, leaf: Any) -> Any:
        """Allocates and begins to copy a leaf, on the side stream."""
        ...

    def record_ready(self) -> Any:
        """Records an event behind the copies begun so far."""
        ...

    def receive(self, ready: Any, storages: Iterable[Any]) -> Any:
        """Makes the caller's current stream wait for an event, and tells the allocator that it uses these.

        Returns:
            The stream.
        """
        ...

    def fence(self, stream: Any) -> Any:
        """Records an event behind what the stream has been given so far."""
        ...

    def has_passed(self, event: Any) -> bool:
        """Whether an event has come to pass."""
        ...

    def wait(self, event: Any) -> None:
        """Lets the host wait for an event."""
        ...


@final
class BlockingMoves:
    """Moves within the calling thread, and returns when they are done: for the cpu and for mps.

    Args:
        device: where to. What is there already is not copied.
    """

    pins: bool = False

    def __init__(self, device: torch.device) -> None:
        self._device: Final = device

    def enter_thread(self) -> None:
        """Nothing: these devices have no current one."""

    def pin(self, leaf: Any) -> Any:
        """Pins for the accelerator that there is."""
        return pinned(leaf)

    def side(self, sources: Iterable[Any]) -> AbstractContextManager[Any]:
        """Nothing: there is no side stream."""
        return contextlib.nullcontext()

    def copy(self, leaf: Any) -> Any:
        """Copies, and waits for it."""
        return move(leaf, self._device, non_blocking=False)

    def record_ready(self) -> None:
        """Nothing: what was copied is there."""

    def receive(self, ready: Any, storages: Iterable[Any]) -> None:
        """Nothing: what was received can be used."""

    def fence(self, stream: Any) -> None:
        """Nothing: memory is free when nobody refers to it."""

    def has_passed(self, event: Any) -> bool:
        """Everything has."""
        return True

    def wait(self, event: Any) -> None:
        """Nothing to wait for."""


@final
class DeviceStreams:
    """The side stream of a device that computes in streams: cuda, and by the same interface xpu and npu.

    Args:
        device: with its index.
    """

    pins: bool = True

    def __init__(self, device: torch.device) -> None:
        self._device: Final = device
        self._module: Final[Any] = torch.get_device_module(device)
        self._side: Final[Any] = self._module.Stream(device=device)

    def enter_thread(self) -> None:
        """Makes the device the current one: else each process would also use the first device."""
        self._module.set_device(self._device)

    def pin(self, leaf: Any) -> Any:
        """Pins what is on the host and can be pinned."""
        return pinned(leaf)

    def side(self, sources: Iterable[Any]) -> AbstractContextManager[Any]:
        """The context of the device module."""
        if any(isinstance(source, torch.Tensor) and self._is_there(source) for source in sources):
            # A loader that works on the device does so on this thread's own stream.
            self._side.wait_stream(self._module.current_stream(self._device))
        context: AbstractContextManager[Any] = self._module.stream(self._side)
        return context

    def copy(self, leaf: Any) -> Any:
        """Begins a copy that does not block."""
        return move(leaf, self._device, non_blocking=True)

    def record_ready(self) -> Any:
        """An event on the side stream."""
        return self.fence(self._side)

    def receive(self, ready: Any, storages: Iterable[Any]) -> Any:
        """`wait_event` and `record_stream`; the host does not wait."""
        stream = self._module.current_stream(self._device)
        stream.wait_event(ready)
        for storage in storages:
            if not isinstance(storage, torch.Tensor) or self._is_there(storage):
                storage.record_stream(stream)
        return stream

    def fence(self, stream: Any) -> Any:
        """An event on that stream."""
        event = _event(self._module)
        event.record(stream)
        return event

    def has_passed(self, event: Any) -> bool:
        """Asks the event."""
        return bool(event.query())

    def wait(self, event: Any) -> None:
        """Waits without the interpreter's lock."""
        event.synchronize()

    def _is_there(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self._device.type


def streams_for(device: torch.device) -> Streams:
    """Gives the driver of a device, in a process always the same one.

    One side stream serves all loaders of a device, for the process's life: memory that was freed belongs to
    the stream on which it was allocated, and a new stream for every epoch would strand it.

    Raises:
        ArgumentValueError: the device is not there.
    """
    require_available(device)
    if device.type in BLOCKING:
        return BlockingMoves(device)
    index = torch.get_device_module(device).current_device() if device.index is None else device.index
    return _device_streams(torch.device(device.type, index))


def current_device() -> torch.device:
    """Gives the accelerator of this process, or the cpu where there is none."""
    if not hasattr(torch, "accelerator"):  # before torch 2.6
        return torch.device(torch._C._get_accelerator())
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if found is None else found


def require_available(device: torch.device) -> None:
    """Requires that a device is there.

    Raises:
        ArgumentValueError: it is not.
    """
    if device.type in {"cpu", "meta"}:
        return
    if device.type == "mps" and torch.backends.mps.is_available():
        return
    try:
        module = torch.get_device_module(device)
    except RuntimeError as error:
        raise ArgumentValueError("device", "is not known to torch", str(device)) from error
    if not hasattr(module, "Stream"):
        raise ArgumentValueError("device", "has no streams that torch knows of", str(device))
    if not module.is_available() or (device.index or 0) >= module.device_count():
        raise ArgumentValueError(
            "device", "is not available here", str(device), mend="None takes the one that is"
        )


@functools.cache
def _device_streams(device: torch.device) -> DeviceStreams:
    return DeviceStreams(device)


def pinned(leaf: Any) -> Any:
    """Gives a leaf in pinned memory, or the leaf itself where it cannot be pinned or is so already.

    A subclass of Tensor that pinning would turn into a plain one stays as it is.
    """
    if isinstance(leaf, torch.Tensor):
        if leaf.device.type != "cpu" or leaf.layout != torch.strided or leaf.is_pinned():
            return leaf
        there = leaf.pin_memory()
        return there if type(there) is type(leaf) else leaf
    pin = getattr(type(leaf), "pin_memory", None)
    if not callable(pin):
        return leaf
    there = leaf.pin_memory()
    return there if is_leaf(there) else leaf


def _event(module: Any) -> Any:
    try:
        # A host that waits for such an event sleeps, rather than asking again and again.
        return module.Event(blocking=True)
    except TypeError:
        return module.Event()
