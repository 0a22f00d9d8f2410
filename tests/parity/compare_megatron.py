"""Compares ours with Megatron itself: python -m tests.parity.compare_megatron INTERPRETER [BUILDS [SEED]].

INTERPRETER is a python that has megatron-core==0.16.1 and torch; BUILDS is how many random datasets are
built and read by both: corpora written by Megatron itself, read token for token, and its index
files. Exits with 0 if all are the same, with 1 if one differs, and with 0 and the reason if Megatron is
missing.
"""

import hashlib
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import samplerkit as sk
from samplerkit.compat import megatron
from tests.corpora import write_tokens
from tests.parity.interpreters import answers, peer_version

RUNNER = Path(__file__).with_name("run_megatron.py")
PARTS = ("train", "valid", "test")
DEFAULT_BUILDS = 60
TIME_LIMIT = 300


def random_case(random: Random, folder: Path) -> dict[str, Any]:
    """Draws corpora, and how they are split, cut and blended."""
    kind = random.choice(["one", "one", "one weighted", "weights", "weights", "sizes", "exhausted"])
    count = 1 if kind.startswith("one") else random.randrange(2, 7)
    longest = random.choice([5, 40, 300])
    written = {
        str(folder / f"corpus{number}"): [
            [random.randrange(250) for _ in range(random.randrange(0 if document else 1, longest))]
            for document in range(random.randrange(40, 160))
        ]
        for number in range(count)
    }
    has_weights = kind in {"one weighted", "weights"}
    is_asked = has_weights or (kind != "exhausted" and random.random() < 0.8)
    sizes = [random.randrange(1, most) for most in (400, 40, 20)]
    return {
        "write": written,
        "dtype": random.choice(["uint16", "int32", "uint8"]),
        "prefixes": list(written),
        "weights": [random.choice([1.0, 2.0, random.random() + 0.01]) for _ in written]
        if has_weights
        else None,
        "sizes": sizes if is_asked else [None] * 3,
        "split": random.choice(["1", "80,15,5", "0.7,0.2,0.1", "969,30,1", "1,1"]),
        "seq_len": random.choice([1, 4, 16, 33]),
        "seed": random.choice([0, 1234, random.randrange(2**32)]),
        "extra": random.random() < 0.7,
        "keep_partial": random.random() < 0.3,
        "surplus": random.choice([0.005, 0.2]),
        "cache": str(folder / "cache"),
    }


def ours_of(case: dict[str, Any], part: str) -> megatron.MegatronDataset:
    """The same part of a case, by our class."""
    return megatron.MegatronDataset(
        case["prefixes"],
        case["sizes"][PARTS.index(part)],
        sequence_length=case["seq_len"],
        weights=case["weights"],
        random_seed=case["seed"],
        split=case["split"],
        part=part,
        add_extra_token_to_sequence=case["extra"],
        drop_last_partial_validation_sequence=not case["keep_partial"],
        mid_level_dataset_surplus=case["surplus"],
    )


def ours(case: dict[str, Any]) -> dict[str, Any] | sk.SamplerkitError:
    """The result of ours for a case, as the runner writes it; or the error."""
    parts: dict[str, Any] = {}
    for part in PARTS:
        try:
            dataset = ours_of(case, part)
            rows = dataset.__getitems__(range(len(dataset)))
        except sk.ArgumentValueError as error:
            if "leaves the part" not in str(error):
                return error
            parts[part] = None
            continue
        except sk.SamplerkitError as error:
            return error
        parts[part] = {"samples": len(dataset), "sha256": hashlib.sha256(rows.tobytes()).hexdigest()}
    return parts


def write_ours(case: dict[str, Any]) -> None:
    """Writes the corpora by our writer: the runner then finds the same bytes, or the case differs."""
    for prefix, documents in case["write"].items():
        write_tokens(prefix, documents, case["dtype"])


def same_files(case: dict[str, Any]) -> bool:
    """Whether the files that Megatron wrote are ours, byte for byte."""
    return all(
        Path(prefix + suffix).read_bytes() == Path(prefix + ".ours" + suffix).read_bytes()
        for prefix in case["write"]
        for suffix in (".bin", ".idx")
    )


def outcome(case: dict[str, Any], own: Any, theirs: dict[str, Any]) -> str:
    """Returns how ours compares on one case."""
    if isinstance(own, sk.SamplerkitError):
        return "both refuse" if "error" in theirs else "DIFFERENT"
    parts = {part: theirs.get(part) for part in PARTS}
    if parts != own or not same_files(case):
        return "DIFFERENT"
    for part in PARTS:
        if own[part] is not None and own[part]["samples"]:
            megatron.compare_cache(ours_of(case, part), case["cache"])
    return "same"


def main(interpreter: str, count: int = DEFAULT_BUILDS, seed: int = 0) -> int:
    """Compares `count` random builds and prints the results."""
    version = peer_version(interpreter, "megatron.core", "megatron.core.datasets.gpt_dataset")
    if version is None:
        return 0
    random, results = Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        cases = []
        for number in range(count):
            folder = Path(place, str(number))
            folder.mkdir()
            case = random_case(random, folder)
            write_ours(case)
            own = ours(case)
            if isinstance(own, sk.SamplerkitError) and "would search forever" in str(own):
                results["we refuse, Megatron would not end"] += 1
                continue
            for path in [*folder.glob("*.bin"), *folder.glob("*.idx")]:
                path.rename(path.with_suffix(".ours" + path.suffix))
            cases.append((case, own))
        answered = answers(interpreter, RUNNER, [case for case, _ in cases], TIME_LIMIT)
        samples = 0
        for (case, own), theirs in zip(cases, answered, strict=True):
            result = outcome(case, own, theirs)
            results[result] += 1
            if result == "DIFFERENT":
                print(f"{result}: { ({**case, 'write': '...'}) }\n  Megatron: {theirs}\n  ours: {own}")
            elif result == "same":
                samples += sum(part["samples"] for part in own.values() if part)
    print(f"Megatron {version}, {count} random builds, {samples} samples:")
    for result, number in sorted(results.items()):
        print(f"  {result}: {number}")
    # A comparison that compares next to nothing is no pass.
    return 1 if results["DIFFERENT"] or results["same"] < 0.6 * count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
