"""The metrics of a loader in the real packages of the extra `log`."""

import functools
import importlib

import pytest

import samplerkit as sk
from samplerkit import sinks

NEEDS = ("tensorboard", "wandb", "prometheus-client", "opentelemetry-sdk")


@pytest.fixture
def figures():
    dataset = sk.TreeDataset({"web": range(60), "code": range(20)})
    loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=8, world=sk.World(1, 0))
    batches = iter(loader)
    for _ in range(9):
        next(batches)
    return loader.figures()


def test_tensorboard_reads_them_from_its_files(figures, tmp_path):
    writing = importlib.import_module("torch.utils.tensorboard")
    with writing.SummaryWriter(tmp_path) as writer:
        sinks.tensorboard(writer)(figures, 9)
    reading = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reading.EventAccumulator(str(tmp_path)).Reload()
    assert {*events.Tags()["scalars"]} == {f"data/{name}" for name in figures}
    (share,) = events.Scalars("data/share/code")
    assert (share.step, share.value) == (9, pytest.approx(figures["share/code"]))


def test_weights_and_biases_keeps_them_offline(figures, tmp_path):
    wandb = importlib.import_module("wandb")
    run = wandb.init(project="samplerkit", mode="offline", dir=tmp_path)
    sinks.wandb(run)(figures, 9)
    run.finish()
    wandb.teardown()  # its service may write the file after `finish`
    (file,) = tmp_path.rglob("*.wandb")
    assert b"data/share/code" in file.read_bytes()


def test_prometheus_shows_them_with_a_rank_and_a_source(figures):
    prometheus_client = importlib.import_module("prometheus_client")
    registry = prometheus_client.CollectorRegistry()
    sink = sinks.prometheus(functools.partial(prometheus_client.Gauge, registry=registry), rank=3)
    for step in (8, 9):
        sink(figures, step)
    assert registry.get_sample_value("samplerkit_step", {"rank": "3"}) == 9
    labels = {"rank": "3", "source": "code"}
    assert registry.get_sample_value("samplerkit_share", labels) == figures["share/code"]
    assert b"samplerkit_ids_per_second" in prometheus_client.generate_latest(registry)


def test_opentelemetry_collects_them(figures):
    metrics = importlib.import_module("opentelemetry.sdk.metrics")
    export = importlib.import_module("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    provider = metrics.MeterProvider([reader])
    sinks.opentelemetry(provider.get_meter("training"), rank=3)(figures, 9)
    (resource,) = reader.get_metrics_data().resource_metrics
    points = {metric.name: metric.data.data_points for metric in resource.scope_metrics[0].metrics}
    assert {point.attributes["source"] for point in points["samplerkit.share"]} == {"web", "code"}
    assert points["samplerkit.position"][0].value == 72
    provider.shutdown()
