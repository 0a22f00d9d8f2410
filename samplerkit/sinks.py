"""Sinks that log the metrics of a loader to TensorBoard, W&B, OpenTelemetry and Prometheus.

Each function takes the user's own writer, run, meter or gauge class, so none of these packages is imported
here, and returns a function to call with the metrics.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

Sink = Callable[[Mapping[str, float], int], None]
"""A function of metrics, as returned by `Loader.figures`, and the training step."""

_SOURCE_METRICS = ("share", "passes", "tokens")
"""Metrics that exist once for each source."""


def tensorboard(writer: Any, prefix: str = "data/") -> Sink:
    """Logs metrics to TensorBoard.

    Args:
        writer: a `torch.utils.tensorboard.SummaryWriter`, or any object with `add_scalar(name, value, step)`.
        prefix: prefix of each name.

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
    """Logs metrics to a run of Weights & Biases, online or offline.

    Args:
        run: the run that `wandb.init` returned.
        prefix: prefix of each name.

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
    """Sets one OpenTelemetry gauge per metric; metrics of sources have an attribute `source`.

    Args:
        meter: a meter of a `MeterProvider`.
        prefix: prefix of each name.
        **attributes: attributes of each value, such as `rank=3`.

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
    gauge_of = cache(meter.create_gauge)

    def sink(figures: Mapping[str, float], step: int) -> None:
        for name, value in {**figures, "step": step}.items():
            gauge_name, extra = _split_source(name)
            gauge = gauge_of(prefix + gauge_name.replace("/", "."))
            gauge.set(value, attributes={**attributes, **extra})

    return sink


def prometheus(gauge: Callable[..., Any], prefix: str = "samplerkit_", **labels: str | int) -> Sink:
    """Sets one Prometheus gauge per metric; metrics of sources have a label `source`.

    Args:
        gauge: `prometheus_client.Gauge`; or `functools.partial(Gauge, registry=registry)` for another
            registry than the default one, which `start_http_server` serves.
        prefix: prefix of each name.
        **labels: labels of each gauge, such as `rank=3`.

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

    @cache
    def gauge_of(name: str, *names: str) -> Any:
        return gauge(name, name, names)

    def sink(figures: Mapping[str, float], step: int) -> None:
        for name, value in {**figures, "step": step}.items():
            gauge_name, extra = _split_source(name)
            all_labels = {**labels, **extra}
            made = gauge_of(prefix + re.sub(r"\W", "_", gauge_name), *all_labels)
            (made.labels(**all_labels) if all_labels else made).set(value)

    return sink


def _split_source(name: str) -> tuple[str, dict[str, str]]:
    """Splits the source off the name of a metric, so that it becomes a label."""
    kind, _, source = name.partition("/")
    return (kind, {"source": source}) if kind in _SOURCE_METRICS else (name, {})
