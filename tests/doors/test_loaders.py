"""The loaders of other packages, by our orders: each example is killed in mid-epoch and resumed."""

from importlib import metadata

import pytest

import samplerkit as sk
from tests.trainers.jobs import EXAMPLES, output_of, run
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES

EPOCHS = 2
PACKAGES = ["composer", "grain", "megatron", "mmengine", "spdl", "timm", "torchtitan"]
NAMES = {"composer": "mosaicml", "megatron": "megatron-core"}


@pytest.mark.parametrize("package", PACKAGES)
def test_an_example_is_killed_and_resumes_without_loss_or_repeat(package, tmp_path):
    try:
        metadata.version(NAMES.get(package, package))
        if package in ("composer", "timm"):  # they import it, and a build of it fits few builds of torch
            metadata.version("torchvision")
    except metadata.PackageNotFoundError:
        pytest.skip(f"not run: {package}, or what it imports, is not installed")
    command = [EXAMPLES / f"train_{package}.py", tmp_path / "run"]
    code, printed = run(tmp_path, *command, DIGITS_KILL="0:33")
    assert code == -9, printed
    printed = output_of(tmp_path, *command)
    assert "90 steps, test accuracy" in printed
    ledger = Ledger.read(tmp_path / "run", SAMPLES)
    assert {line.step for line in ledger.replayed} == {30, 31, 32, 33}
    received = [id for line in sorted(ledger.kept, key=lambda line: line.step) for id in line.ids]
    # Grain's batches run on over the end of an epoch, so the epochs are looked at one after another.
    orders = [sk.RandomSampler(seed=7).order(SAMPLES, epoch)[:].tolist() for epoch in range(EPOCHS)]
    assert received == [id for order in orders for id in order]
