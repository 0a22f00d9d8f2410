"""Jobs that read samples, batches and windows of tokens are killed and resume on other numbers of ranks.

Windows are read by threads, and then have another length. Checkpoints are JSON, and those of batches are
torch's, saved and loaded by all ranks.

One of a campaign runs under torchrun, which is a start of torch for each rank; the others are forked.
"""

import json
import os
import random

import pytest

from tests.jobs import ended
from tests.loading.verify_ledgers import verify
from tests.ranks import job

SAMPLES, TOKENS, EPOCHS = 480, 1888, 2


def torchrun(ranks, *arguments):
    """Runs the job to its end."""
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return ended(*command, "-m", "tests.loading.job", *map(str, arguments), seconds=120)


def forked(ranks, *arguments):
    """As `torchrun`, without it."""
    return job(ranks, "tests.loading.job", *arguments, seconds=120)


def run_job(start, folder, run, ranks, kill="nobody:0", epochs=EPOCHS):
    """Runs the job to its end; gives its exit code and what it printed."""
    code, printed, errors = start(ranks, folder, run, "--epochs", epochs, "--kill", kill)
    return code, printed + errors


def require_tokens_and_windows_once(folder, runs, epochs):
    """The same job reads by batches within a budget of tokens, and windows of tokens, too."""
    for name, size in (("tokens", SAMPLES), ("windows", TOKENS)):
        ledger = verify(folder, size, epochs, [f"{run}-{name}" for run in runs])
        print(f"{name}: {ledger}")
        assert ledger["delivered"] == size * epochs
        assert (ledger["lost"], ledger["repeated"]) == (0, 0)
        assert ledger["replayed"] > 0


@pytest.mark.parametrize(
    ("start", "ranks", "kill", "new_ranks"),
    [
        (forked, 4, "rank:17", 3),
        pytest.param(torchrun, 2, "job:31", 3, marks=pytest.mark.campaign),
        pytest.param(forked, 3, "worker:6", 1, marks=pytest.mark.campaign),
    ],
)
def test_a_killed_job_resumes_on_other_ranks_and_loses_and_repeats_nothing(
    tmp_path, start, ranks, kill, new_ranks
):
    code, printed = run_job(start, tmp_path, "first", ranks, kill)
    assert code != 0
    if kill.startswith("worker"):
        assert "WorkerError" in printed
    code, printed = run_job(start, tmp_path, "second", new_ranks)
    assert code == 0, printed
    ledger = verify(tmp_path, SAMPLES, EPOCHS, ["first", "second"])
    print(f"{ranks} to {new_ranks} ranks, {kill} killed: {ledger}")
    assert ledger["delivered"] == SAMPLES * EPOCHS
    assert (ledger["lost"], ledger["repeated"]) == (0, 0)
    assert 0 < ledger["replayed"] < 24 * 4
    require_tokens_and_windows_once(tmp_path, ["first", "second"], EPOCHS)
    # The control: a checkpoint that was a step off would show.
    saved = tmp_path / "first.saved"
    saved_steps = int(saved.read_text())
    for steps, wrong in ((-1, "lost"), (1, "repeated")):
        saved.write_text(str(saved_steps + steps))
        assert verify(tmp_path, SAMPLES, EPOCHS, ["first", "second"])[wrong] == 24


@pytest.mark.campaign
def test_a_job_that_is_killed_again_and_again_loses_and_repeats_nothing(tmp_path):
    """8 kills in a row; SAMPLERKIT_KILLS says how many."""
    kills = int(os.environ.get("SAMPLERKIT_KILLS", "8"))
    rng, epochs, runs = random.Random(2026), kills, []
    for number in range(kills):
        ranks = rng.choice([1, 2, 3, 4])
        kill = f"{rng.choice(['rank', 'worker', 'job'])}:{rng.randint(1, 20)}"
        runs.append(f"run-{number:04}")
        code, printed = run_job(forked, tmp_path, runs[-1], ranks, kill, epochs)
        assert code != 0, printed
    runs.append("last")
    code, printed = run_job(forked, tmp_path, runs[-1], 2, epochs=epochs)
    assert code == 0, printed
    ledger = verify(tmp_path, SAMPLES, epochs, runs)
    print(f"{kills} kills: {ledger}")
    assert ledger["delivered"] == SAMPLES * epochs
    assert (ledger["lost"], ledger["repeated"]) == (0, 0)
    require_tokens_and_windows_once(tmp_path, runs, epochs)


def test_the_verifier_finds_what_is_lost_and_what_is_repeated(tmp_path):
    batches = [{"epoch": 0, "ids": [0, 1, 1]}, {"epoch": 0, "ids": [3]}]
    (tmp_path / "run.0.jsonl").write_text("\n".join(map(json.dumps, batches)))
    assert verify(tmp_path, 4, 1, ["run"]) == {"delivered": 4, "lost": 1, "repeated": 1, "replayed": 0}
