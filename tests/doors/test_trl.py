"""TRL: packs of documents in an SFTTrainer that dies and resumes from its own checkpoint."""

import json
from collections import Counter

from tests.doors.lengths import LENGTHS
from tests.trainers.jobs import output_of, run

NEEDS = ("trl", "transformers", "datasets")


def test_an_sft_trainer_resumes_with_the_remaining_packs(tmp_path):
    command = ["-m", "tests.doors.sft_job", tmp_path / "run"]
    code, printed = run(tmp_path, *command)
    assert code == 9, printed
    printed = output_of(tmp_path, *command)
    lines = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    steps = {line["step"]: line["tokens"] for line in lines}
    assert len(lines) == len(steps) + 3  # those from the checkpoint to the death, once more
    assert f"{len(steps)} steps of {len(steps)}" in printed
    half = len(steps) // 2
    for epoch in (range(half), range(half, 2 * half)):
        received = Counter(token for step in epoch for token in steps[step])
        assert received == dict(enumerate(LENGTHS))
