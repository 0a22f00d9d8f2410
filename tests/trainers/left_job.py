"""Runs an example without automatic garbage collection, and writes which threads of gloo are left.

Run as `torchrun --nproc-per-node RANKS -m tests.trainers.left_job FOLDER EXAMPLE ARGUMENTS...`.
"""

import gc
import os
import runpy
import sys
from pathlib import Path


def threads_of_gloo() -> list[str]:
    """The names of the threads of this process that are gloo's."""
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if "gloo" in name]


def main(folder: Path, example: str, *arguments: str) -> None:
    """Runs the example as a script."""
    gc.disable()
    sys.argv = [example, *arguments]
    sys.path.insert(0, str(Path(example).parent))
    runpy.run_path(example, run_name="__main__")
    (folder / f"left-{os.environ['RANK']}").write_text(" ".join(threads_of_gloo()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
