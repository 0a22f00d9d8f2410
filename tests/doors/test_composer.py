"""What `check` says of Composer's Trainer, which skips by itself unless it is told not to."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

import samplerkit as sk
from samplerkit.inspect import check

NEEDS = ("mosaicml", "torchvision")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Composer's own, beside a torch that is newer than it


@pytest.mark.parametrize(("options", "codes"), [({}, ["skipped-twice"]), ({"spin_dataloaders": False}, [])])
def test_a_trainer_that_would_skip_what_the_state_has_behind_it_is_found(options, codes):
    composer = import_module("composer")

    class Model(composer.ComposerModel):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, batch):
            return batch

        def loss(self, outputs, batch):
            return torch.zeros(())

    loader = sk.Loader(range(64), sk.RandomSampler(seed=7), batch_size=8, world=sk.World(1, 0))
    trainer = composer.Trainer(
        model=Model(), train_dataloader=loader, max_duration="1ep", device="cpu", **options
    )
    assert [finding.code for finding in check(trainer)] == codes
