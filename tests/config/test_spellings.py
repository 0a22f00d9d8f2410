"""Hydra's and LightningCLI's spellings of a sampler."""

from __future__ import annotations

import pytest

import samplerkit as sk
from samplerkit.config.registry import SAMPLERS
from tests.config.links import LINKS, OURS, SIZE


@pytest.mark.parametrize("kind", OURS)
def test_hydra_and_lightning_spellings_name_every_sampler_of_ours(kind):
    section = next(link[0] for link in LINKS if link[0]["kind"] == kind)
    given = {name: value for name, value in section.items() if name != "kind"}
    target = f"samplerkit.{SAMPLERS[kind].make.__name__}"
    plain = sk.load_config({"sampler": section})
    hydra = sk.load_config({"sampler": {"_target_": target, **given}})
    lightning = sk.load_config({"sampler": {"class_path": target, "init_args": given}})
    assert plain == hydra == lightning
    assert hydra.to_dict()["sampler"]["kind"] == kind


def test_the_spellings_mix_along_a_chain():
    config = sk.load_config(
        {
            "sampler": {
                "_target_": "samplerkit.RandomSampler",
                "child": {
                    "class_path": "samplerkit.SubsetSampler",
                    "init_args": {"indices": [5, 6], "child": {"kind": "sequential", "start_index": 2}},
                },
            }
        }
    )
    assert sorted(config.sampler.order(SIZE)) == [7, 8]
    assert sk.load_config({"sampler": {"class_path": "samplerkit.RandomSampler"}}).sampler is not None
