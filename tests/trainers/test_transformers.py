"""Hugging Face: a map-style Dataset that gets whole batches of ids, in the Trainer."""

from __future__ import annotations

from tests.trainers.restarted import check_restarted_in_mid_epoch

NEEDS = ("transformers", "accelerate", "datasets", "scikit-learn")


def test_a_trainer_is_restarted_and_goes_on_in_mid_epoch_from_its_own_checkpoint(tmp_path):
    printed = check_restarted_in_mid_epoch(tmp_path, "train_transformers.py")
    assert "46 steps, test accuracy" in printed
