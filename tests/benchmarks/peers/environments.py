"""Makes the environments of the peers: pip only, each made once, with the reason where one cannot be made."""

import json
import subprocess
import sys
import venv
from dataclasses import asdict, dataclass
from pathlib import Path

PEERS = {
    "samplerkit": "torch",
    "torch": "torch",
    "torchdata": "torch",
    "webdataset": "torch",
    "grain": "grain",
    "streaming": "streaming",
    "mindspore": "mindspore",
}
"""The environment in which each peer runs."""

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "torch": (
        "torch==2.13.0",
        "numpy>=2.4",
        "pydantic>=2.7",
        "PyYAML>=6.0",
        "rich>=13.0",
        "typer>=0.12",
        "torchdata==0.11.0",
        "webdataset==1.0.2",
    ),
    "grain": ("grain==0.2.18", "numpy>=2.4"),
    # What it imports of what it requires: the clients of the clouds are imported when they are used.
    "streaming": (
        "torch==2.13.0",
        "numpy<2.2",
        "Brotli>=1.0.9",
        "catalogue<3",
        "filelock>=3",
        "pillow>=10",
        "python-snappy<1",
        "requests>=2",
        "tqdm<5",
        "transformers<5",
        "xxhash<4",
        "zstd<2",
    ),
    "mindspore": ("mindspore==2.10.0",),
}
"""What pip installs into each environment."""

WITHOUT_DEPENDENCIES: dict[str, tuple[str, ...]] = {
    # torchvision would bring the CUDA build of torch along, of several GB.
    "streaming": ("mosaicml-streaming==0.13.0", "torchvision==0.28.0"),
}
"""What is installed with `--no-deps`, after the requirements."""

ROOT = Path(__file__).parents[3]
RECORD = "environments.json"
PIP_SECONDS = 900


@dataclass(frozen=True)
class Environment:
    """An environment of a peer.

    Args:
        python: its interpreter; empty where it could not be made.
        requirements: what it was made from.
        reason: why it cannot be used; None where it can.
    """

    python: str
    requirements: tuple[str, ...]
    reason: str | None = None


def load(folder: Path) -> dict[str, Environment]:
    """Gives the environments of a folder; those that were not made say so."""
    record = folder / RECORD
    records = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    return {
        name: Environment(**{**records[name], "requirements": tuple(records[name]["requirements"])})
        if name in records
        else Environment("", (), "its environment was not made")
        for name in REQUIREMENTS
    }


def make(folder: Path, use: dict[str, str]) -> dict[str, Environment]:
    """Makes the environments that are missing or were made from other requirements.

    Args:
        folder: where they lie.
        use: interpreters to use in place of new environments, by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environments = load(folder)
    for name in REQUIREMENTS:
        if name in use:
            environments[name] = Environment(use[name], ("given",), _start_problem(use[name], name))
        elif environments[name].requirements != _requirements(name) or environments[name].reason is not None:
            print(f"{name}: pip install {' '.join(_requirements(name))}", flush=True)
            environments[name] = _installed(folder / name, name)
        print(f"{name}: {environments[name].reason or 'ready'}", flush=True)
        records = {key: asdict(value) for key, value in environments.items() if value.requirements}
        (folder / RECORD).write_text(json.dumps(records, indent=1), encoding="utf-8")
    return environments


def _requirements(name: str) -> tuple[str, ...]:
    return REQUIREMENTS[name] + WITHOUT_DEPENDENCIES.get(name, ())


def _installed(place: Path, name: str) -> Environment:
    venv.create(place, with_pip=True, clear=True)
    python = str(place / "bin" / "python")
    installs = [REQUIREMENTS[name], ("--no-deps", *WITHOUT_DEPENDENCIES.get(name, ()))]
    for arguments in installs:
        if arguments == ("--no-deps",):
            continue
        problem = _problem([python, "-m", "pip", "install", "--quiet", *arguments], PIP_SECONDS)
        if problem is not None:
            return Environment("", _requirements(name), f"pip could not install it: {problem}")
    return Environment(python, _requirements(name), _start_problem(python, name))


def _start_problem(python: str, name: str) -> str | None:
    """Starts the peers of an environment; gives why one does not."""
    for peer in (peer for peer, of in PEERS.items() if of == name):
        problem = _problem([python, "-m", f"tests.benchmarks.peers.{peer}", "versions"], 120)
        if problem is not None:
            return f"{peer} does not start: {problem}"
    return None


def _problem(command: list[str], seconds: float) -> str | None:
    """Runs a command; gives the last line of what it complained about, None where it succeeded."""
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:200]
    if run.returncode == 0:
        return None
    errors = [line for line in run.stderr.splitlines() if line.strip() and "[notice]" not in line]
    return errors[-1][:200] if errors else f"exit code {run.returncode}"


def parsed(arguments: list[str]) -> dict[str, str]:
    """Reads NAME=PYTHON arguments."""
    use = dict(one.split("=", 1) for one in arguments if "=" in one)
    strangers = [one for one in arguments if one.split("=", 1)[0] not in REQUIREMENTS or "=" not in one]
    if strangers:
        sys.exit(f"--use takes NAME=PYTHON with NAME of {', '.join(REQUIREMENTS)}: {strangers[0]}")
    return use
