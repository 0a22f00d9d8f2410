"""torchrun: DDP, a run that resumes with other ranks, and elastic restarts."""

from __future__ import annotations

from tests.jobs import reserved_port
from tests.trainers.jobs import EXAMPLES, Job, run, torchrun
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES, check_exactly_once

NEEDS = ("scikit-learn",)
SCRIPT = EXAMPLES / "train_ddp.py"


def test_a_ddp_run_resumes_with_as_many_ranks_with_fewer_and_with_more(tmp_path):
    """Two agents stand for two nodes; a worker of the second one is killed, and later the whole node.

    The rendezvous is on the first one. What torchrun could not do by itself comes last: a third rank.
    """
    rendezvous = ["--rdzv-backend=c10d", "--local-addr=127.0.0.1"]
    agent = ["-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3"]
    agent += rendezvous
    patience = "last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=6"
    script = [SCRIPT, tmp_path]
    # The rendezvous decides which rank the second agent gets.
    kills = "0:8,1:8,0:33:agent,1:33:agent"
    with reserved_port() as port, Job(tmp_path) as job:
        agent.append(f"--rdzv-endpoint=127.0.0.1:{port}")
        first = job.start(*agent, f"--rdzv-conf={patience},is_host=true", *script)
        job.start(*agent, f"--rdzv-conf={patience},is_host=false", *script, DIGITS_KILL=kills)
        code, printed = job.end(first, seconds=300)
    assert code == 0, printed
    assert len(list(tmp_path.glob("killed-*"))) == 2
    code, printed = run(tmp_path, *torchrun(3, *script, "--epochs=3"))
    assert code == 0, printed
    assert "continues in epoch 1, step 45, on 3 ranks" in printed

    ledger = Ledger.read(tmp_path, SAMPLES)
    print(f"ranks {ledger.ranks}, received again {sum(len(line.ids) for line in ledger.replayed)}")
    # A node that joins late makes the other one begin alone, and again.
    assert ledger.ranks[-3:] == [2, 1, 3]
    assert len(ledger.ranks) >= 4
    assert {line.step for line in ledger.replayed} >= {5, 6, 7, 8, 30, 31, 32, 33, 45}
    # Two ranks need a pad, one does not; nor do three, of the 29 samples left and of 1437.
    check_exactly_once(ledger, pads=[1, -29 % 3, 0])
