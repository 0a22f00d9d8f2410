"""Where the figures of a loader go: each function takes what the training has open, and gives what to call.

Nothing of this imports a package: each is handed the user's own writer, run, gauge or meter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Sink = Callable[[Mapping[str, float], int], None]
"""Is called with figures, as `Loader.figures` gives them, and the step of the training."""

_OF_SOURCES = ("share", "passes", "tokens")
"""Figures of which there is one for each source."""


def tensorboard(writer: Any, prefix: str = "data/") -> Sink:
    """Writes figures into TensorBoard.

    Args:
        writer: `torch.utils.tensorboard.SummaryWriter`, or another one with `add_scalar(name, value, step)`.
        prefix: before each name.

    Example:
        >>> class Writer:
        ...     def add_scalar(self, name, value, step):
        ...         print(name, value, step)
        >>> tensorboard(Writer())({"epoch": 2, "share/web": 0.75}, 100)
        data/epoch 2 100
        data/share/web 0.75 100
    """

    def sink(figures: Mapping[str, float], step: int) -> None:
        for name, value in figures.items():
            writer.add_scalar(prefix + name, value, step)

    return sink


def wandb(run: Any, prefix: str = "data/") -> Sink:
    """Writes figures into a run of Weights & Biases, online or offline.

    Args:
        run: from `wandb.init`.
        prefix: before each name.

    Example:
        >>> class Run:
        ...     def log(self, figures, step):
        ...         print(figures, step)
        >>> wandb(Run())({"epoch": 2}, 100)
        {'data/epoch': 2} 100
    """

    def sink(figures: Mapping[str, float], step: int) -> None:
        run.log({prefix + name: value for name, value in figures.items()}, step=step)

    return sink


def opentelemetry(meter: Any, prefix: str = "samplerkit.", **attributes: str | int) -> Sink:
    """Sets gauges of OpenTelemetry, one a figure; those of sources have an attribute `source`.

    Args:
        meter: from a `MeterProvider`.
        prefix: before each name.
        **attributes: of each value, such as `rank=3`.

    Example:
        >>> class Meter:
        ...     def create_gauge(self, name):
        ...         self.name = name
        ...         return self
        ...     def set(self, value, attributes):
        ...         print(self.name, value, attributes)
        >>> opentelemetry(Meter(), rank=3)({"share/web": 0.75}, 100)
        samplerkit.share 0.75 {'rank': 3, 'source': 'web'}
        samplerkit.step 100 {'rank': 3}
    """
    gauges: dict[str, Any] = {}

    def sink(figures: Mapping[str, float], step: int) -> None:
        for name, value in {**figures, "step": step}.items():
            called, more = _labelled(name)
            called = prefix + called.replace("/", ".")
            if called not in gauges:
                gauges[called] = meter.create_gauge(called)
            gauges[called].set(value, attributes={**attributes, **more})

    return sink


def prometheus(gauge: Callable[..., Any], prefix: str = "samplerkit_", **labels: str | int) -> Sink:
    """Sets gauges of Prometheus, one a figure; those of sources have a label `source`.

    Args:
        gauge: `prometheus_client.Gauge`; or `functools.partial(Gauge, registry=registry)` for another
            registry than that of the process, which `start_http_server` shows.
        prefix: before each name.
        **labels: of each gauge, such as `rank=3`.

    Example:
        >>> class Gauge:
        ...     def __init__(self, name, text, labels):
        ...         self.name = name
        ...     def labels(self, **labels):
        ...         return self
        ...     def set(self, value):
        ...         print(self.name, value)
        >>> prometheus(Gauge, rank=3)({"dataset/files_read": 7}, 100)
        samplerkit_dataset_files_read 7
        samplerkit_step 100
    """
    gauges: dict[str, Any] = {}

    def sink(figures: Mapping[str, float], step: int) -> None:
        for name, value in {**figures, "step": step}.items():
            called, more = _labelled(name)
            called = prefix + re.sub(r"\W", "_", called)
            if called not in gauges:
                gauges[called] = gauge(called, called, (*labels, *more))
            all_labels = {**labels, **more}
            (gauges[called].labels(**all_labels) if all_labels else gauges[called]).set(value)

    return sink


def _labelled(name: str) -> tuple[str, dict[str, str]]:
    """Takes the name of a source from that of a figure: there is one series a source, and not one name."""
    called, _, source = name.partition("/")
    return (called, {"source": source}) if called in _OF_SOURCES else (name, {})
