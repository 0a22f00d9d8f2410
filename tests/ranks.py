"""A job of several ranks on this machine, forked from one process that has done their imports.

Run as `python -m tests.ranks RANKS MODULE ARGUMENTS`: each rank calls `main` of the module, in an environment
like that of torchrun. Each start of torch takes seconds of processor; here a job takes one, whatever its
ranks. The job fails with its first rank that fails; its caller ends the others.
"""

import gc
import importlib
import os
import sys

from tests.jobs import ended, reserved_port


def job(ranks: int, module: str, *arguments: object, seconds: float) -> tuple[int, str, str]:
    """Runs a job to its end; returns the exit code, the output and the standard error."""
    return ended("-m", "tests.ranks", str(ranks), module, *map(str, arguments), seconds=seconds)


def main() -> None:
    """Starts the ranks and waits for them; in each rank, does its work and ends like any program."""
    number, name, *arguments = sys.argv[1:]
    module = importlib.import_module(name)
    gc.freeze()
    with reserved_port() as port:
        world = {"WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number}
        world |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        for rank in map(str, range(int(number))):
            if os.fork() == 0:
                os.environ.update(world, RANK=rank, LOCAL_RANK=rank)
                sys.argv = [name, *arguments]
                module.main()
                return
        for _ in range(int(number)):
            _, status = os.wait()
            if status:
                sys.exit(1)


if __name__ == "__main__":
    main()
