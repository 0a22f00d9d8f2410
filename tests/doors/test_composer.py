"""What `check` says of Composer's Trainer, which skips samples by itself unless an option forbids it."""

from importlib import import_module

import pytest
import torch

import samplerkit as sk
from samplerkit.inspect import check

NEEDS = ("mosaicml", "torchvision")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Composer, with a torch that is newer


@pytest.mark.parametrize(("options", "codes"), [({}, ["skipped-twice"]), ({"spin_dataloaders": False}, [])])
def test_a_trainer_that_would_skip_samples_before_the_state_is_found(options, codes):
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
