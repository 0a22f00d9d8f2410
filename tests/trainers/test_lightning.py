"""Lightning: our loader in its checkpoints, and what it does to a DataLoader with our sampler."""

import samplerkit as sk
from tests.trainers.jobs import EXAMPLES, output_of, run_until_killed
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES, check_exactly_once

NEEDS = ("lightning", "scikit-learn")


def test_a_fit_of_two_epochs_that_is_killed_resumes_in_mid_epoch(tmp_path):
    script = EXAMPLES / "train_lightning.py"
    run_until_killed(tmp_path, script, tmp_path, rank=1, step=33)
    printed = output_of(tmp_path, script, tmp_path)
    assert "epoch 1: 46 steps" in printed
    ledger = Ledger.read(tmp_path, SAMPLES)
    assert ledger.ranks == [2, 2]
    assert {line.step for line in ledger.replayed} == {30, 31, 32, 33}
    check_exactly_once(ledger, pads=[1, 1])


def test_our_sampler_is_left_alone_and_set_epoch_reaches_it(tmp_path):
    wirings = ("sampler", "sampler_limited", "batches", "batches_left_alone", "torchs_random")
    output_of(tmp_path, "-m", "tests.trainers.lightning_job", tmp_path, *wirings)
    ledgers = {wiring: Ledger.read(tmp_path / wiring, SAMPLES) for wiring in wirings}
    check_exactly_once(ledgers["sampler"], pads=[1, 1])
    check_exactly_once(ledgers["batches_left_alone"], pads=[1, 1])

    # Without set_epoch, an epoch that is left after five batches would begin again.
    read = 5 * 64
    for epoch in range(2):
        order = sk.RandomSampler(seed=7).order(SAMPLES, epoch)
        assert ledgers["sampler_limited"].order(epoch) == order[:read].tolist()

    # Lightning puts its own sampler into a DataLoader that has a batch sampler of ours, which refuses it.
    assert not ledgers["batches"].kept
    for rank in range(2):
        assert "must be a TorchSampler" in (tmp_path / "batches" / f"refused-{rank}.txt").read_text()

    # The negative control: a sampler of torch's is replaced, and this test would see it.
    replaced = ledgers["torchs_random"]
    assert replaced.lost == [0, 0]
    assert replaced.order(0) != ledgers["sampler"].order(0)


def test_batches_of_a_budget_are_read_if_every_epoch_has_the_same_number(tmp_path):
    wirings = ("tokens", "tokens_left_alone", "windows")
    output_of(tmp_path, "-m", "tests.trainers.lightning_job", tmp_path, *wirings)
    ledgers = {wiring: Ledger.read(tmp_path / wiring, SAMPLES) for wiring in wirings}
    assert ledgers["tokens"].lost == ledgers["tokens"].repeated == [0, 0]
    # Of 51 batches, the second rank gets one again.
    assert ledgers["tokens_left_alone"].lost == [0, 0]
    assert all(0 < repeated < 260 for repeated in ledgers["tokens_left_alone"].repeated)
    # The negative control: by windows, the second epoch has a step more than the first, by which Lightning
    # counts: so it is left early.
    assert ledgers["windows"].lost[0] == 0
    assert ledgers["windows"].lost[1] > 0
