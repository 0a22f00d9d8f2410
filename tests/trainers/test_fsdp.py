"""FSDP and tensor parallelism over a device mesh."""

from __future__ import annotations

from tests.trainers.jobs import EXAMPLES, run, torchrun
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES, check_exactly_once

NEEDS = ("scikit-learn",)


def test_ranks_of_a_replica_get_the_same_batches_and_another_mesh_resumes(tmp_path):
    script = [EXAMPLES / "train_fsdp.py", tmp_path]
    code, printed = run(tmp_path, *torchrun(4, *script), DIGITS_KILL="3:33")
    assert code != 0
    assert (tmp_path / "killed-3-33").exists(), printed
    code, printed = run(tmp_path, *torchrun(2, *script, "--tensor-parallel=1"))
    assert code == 0, printed
    assert "continues in epoch 1, step 30, as 2 x 1" in printed

    # Before: ranks 0 and 1 hold one replica, 2 and 3 the other one. After: one replica a rank.
    everyone = Ledger.read(tmp_path, SAMPLES)
    assert everyone.ranks == [4, 2]
    received = {(line.start, line.rank, line.step): line.ids for line in everyone.kept}
    for step in range(30):
        assert received[0, 0, step] == received[0, 1, step]
        assert received[0, 2, step] == received[0, 3, step]
        assert not set(received[0, 0, step]) & set(received[0, 2, step])

    one_rank_each = everyone.only(lambda line: line.start > 0 or line.rank in {0, 2})
    check_exactly_once(one_rank_each, pads=[1, 1])
    # The negative control: all ranks together received everything twice as long as a replica had two.
    assert everyone.repeated[0] == SAMPLES + 2
