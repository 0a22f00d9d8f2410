"""Hugging Face: a map-style Dataset that gets whole batches of ids, in the Trainer."""

from tests.trainers.jobs import EXAMPLES, output_of, torchrun
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import check_restarted_in_mid_epoch

NEEDS = ("transformers", "accelerate", "datasets", "scikit-learn")


def test_a_trainer_is_restarted_and_resumes_in_mid_epoch_from_its_own_checkpoint(tmp_path):
    printed = check_restarted_in_mid_epoch(tmp_path, "train_transformers.py")
    assert "46 steps, test accuracy" in printed


def test_a_trainer_with_batches_of_a_budget_is_restarted_and_resumes_in_mid_epoch(tmp_path):
    command = torchrun(2, EXAMPLES / "train_text_transformers.py", tmp_path, restarts=1)
    printed = output_of(tmp_path, *command, DIGITS_KILL="1:22")
    assert "32 steps, loss on new texts" in printed
    ledger = Ledger.read(tmp_path, 1200)
    assert ledger.ranks == [2, 2]
    assert {line.step for line in ledger.replayed} == {20, 21, 22}
    assert ledger.lost == ledger.repeated == [0, 0]
    assert len({len(line.ids) for line in ledger.kept}) > 10
