"""torchdata: our sampler in a StatefulDataLoader with workers."""

from __future__ import annotations

from tests.trainers.restarted import check_restarted_in_mid_epoch

NEEDS = ("torchdata", "scikit-learn")


def test_a_run_is_restarted_and_resumes_in_mid_epoch(tmp_path):
    assert "continues in epoch 1, step 30" in check_restarted_in_mid_epoch(tmp_path, "train_torchdata.py")
