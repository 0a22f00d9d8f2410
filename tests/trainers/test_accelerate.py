"""Accelerate: our loader without `prepare`, and what `prepare` does to a DataLoader with our sampler."""

import samplerkit as sk
from tests.trainers.jobs import output_of, torchrun
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES, check_exactly_once, check_restarted_in_mid_epoch

NEEDS = ("accelerate", "scikit-learn")
BATCHES = sk.TokenBatches(1000, lengths=[4 + number % 60 for number in range(SAMPLES)], pool=1)
"""Those of the job."""


def test_a_run_is_restarted_and_resumes_in_mid_epoch(tmp_path):
    assert "continues in epoch 1, step 30" in check_restarted_in_mid_epoch(tmp_path, "train_accelerate.py")


def test_prepare_deals_an_undealt_order_and_deals_a_dealt_one_again(tmp_path):
    wirings = ("loader", "prepared", "prepared_batches", "dealt_twice", "loader_tokens", "prepared_tokens")
    output_of(tmp_path, *torchrun(2, "-m", "tests.trainers.accelerate_job", tmp_path, *wirings))
    ledgers = {wiring: Ledger.read(tmp_path / wiring, SAMPLES) for wiring in wirings}
    check_exactly_once(ledgers["loader"], pads=[1, 1])
    orders = [set(sk.RandomSampler(seed=7).order(SAMPLES, epoch)[:64].tolist()) for epoch in range(2)]
    for wiring in ("prepared", "prepared_batches"):
        # Accelerate deals whole batches, and fills the last ones from the beginning.
        ledger = ledgers[wiring]
        assert ledger.lost == [0, 0]
        assert ledger.repeated == [35, 35]
        assert [set(ledger.order(epoch)[:64]) for epoch in range(2)] == orders
    # Of 51 batches of a budget, our loader splits the last one in two; Accelerate repeats the first one.
    first = BATCHES.plan(sk.RandomSampler(seed=7), SAMPLES)
    assert len(first) == 51
    assert ledgers["loader_tokens"].lost == ledgers["loader_tokens"].repeated == [0, 0]
    assert ledgers["prepared_tokens"].lost == [0, 0]
    assert ledgers["prepared_tokens"].repeated[0] == first[0].size
    # The negative control: a rank's share of a rank's share.
    assert all(lost > SAMPLES // 2 - 40 for lost in ledgers["dealt_twice"].lost)
