"""Counts lost and repeated samples in the ledgers of a job. Imports nothing of samplerkit.

Of each run but the last, what its ranks received up to its last checkpoint counts; the rest is replayed.
"""

import json
from collections import Counter


def verify(folder, samples, epochs, runs):
    """Gives how many deliveries of runs, in turn, counted, and how many were lost, repeated, and replayed."""
    counted, replayed = Counter(), 0
    for run in runs:
        saved = folder / f"{run}.saved"
        steps = int(saved.read_text()) if saved.exists() else 0
        for ledger in sorted(folder.glob(f"{run}.*.jsonl")):
            for number, line in enumerate(ledger.read_text().splitlines()):
                batch = json.loads(line)
                if run == runs[-1] or number < steps:
                    counted.update((batch["epoch"], sample) for sample in batch["ids"])
                else:
                    replayed += len(batch["ids"])
    expected = Counter((epoch, sample) for epoch in range(epochs) for sample in range(samples))
    return {
        "delivered": counted.total(),
        "lost": (expected - counted).total(),
        "repeated": (counted - expected).total(),
        "replayed": replayed,
    }
