"""Hydra: a config makes our loader and samplers, and the command line changes them."""

import samplerkit as sk
from tests.chains import under
from tests.trainers.jobs import EXAMPLES, output_of, run, run_until_killed
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES, check_exactly_once

NEEDS = ("hydra-core", "scikit-learn")
SCRIPT = EXAMPLES / "train_hydra.py"


def test_a_run_that_is_killed_resumes_and_refuses_another_seed(tmp_path):
    folder = f"folder={tmp_path}"
    run_until_killed(tmp_path, SCRIPT, folder, rank=0, step=33)
    code, printed = run(tmp_path, SCRIPT, folder, "seed=8")
    assert code != 0
    assert "state: seed" in printed
    printed = output_of(tmp_path, SCRIPT, folder)
    assert "continues in epoch 1, step 30" in printed
    ledger = Ledger.read(tmp_path, SAMPLES)
    assert {line.step for line in ledger.replayed} == {30, 31, 32, 33}
    check_exactly_once(ledger, pads=[0, 0])


def test_the_command_line_chooses_another_sampler(tmp_path):
    arguments = (f"folder={tmp_path}", "sampler=chain", "loader.batch_size=100", "epochs=1")
    output_of(tmp_path, SCRIPT, *arguments)
    ledger = Ledger.read(tmp_path, SAMPLES)
    first = under(sk.RandomSampler(seed=7), sk.SequentialSampler(num_samples=1000))
    assert ledger.order(0) == list(first.order(SAMPLES, 0))
    assert len(ledger.kept) == 10
