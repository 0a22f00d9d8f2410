"""Python programs, each a fork of a process that has imported torch already.

A start of torch takes seconds of processor, and a fork tenths of one. Tests of the start itself (its
imports, hash seeds, flags of Python) start Python. Run as a program, this file is the process that forks.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAME = "SAMPLERKIT_TESTS_PROGRAMS"
"""The variable with the name of a process that forks for several others."""
IMPORTED = (
    *("asyncio", "multiprocessing.pool", "multiprocessing.resource_tracker", "concurrent.futures.thread"),
    *("numpy", "pydantic", "yaml", "torch", "torch.distributed", "torch.multiprocessing", "torch.utils.data"),
)
"""Modules that take long to import, without the package, since a planted bug is in a copy of it."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Program(subprocess.Popen[str]):
    """A program as `subprocess.Popen` starts it, in a session of its own, which ends with its caller.

    Args:
        arguments: of Python: `-c`, a text, and its arguments; or `-m`, a module, and its arguments.
        cwd: where it runs.
        env: its variables; those of this process if left out.
        pipes: `stdin`, `stdout` and `stderr` as of `Popen`, for text.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path | str = ROOT,
        env: dict[str, str] | None = None,
        **pipes: Any,
    ) -> None:
        assert arguments[0] in {"-c", "-m"}, "flags of Python need a start of Python"
        self._request = json.dumps([list(arguments), str(cwd), dict(os.environ if env is None else env)])
        super().__init__(["python", *arguments], text=True, **pipes)

    # The steps of Popen that differ; they have these names and arguments in Python 3.11 to 3.13.

    def _execute_child(self, *arguments: Any) -> None:
        pipes = arguments[10:16]
        ends = [own if end == -1 else end for own, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        request = self._request.encode()
        self._parent = socket.socket(socket.AF_UNIX)
        self._parent.connect("\0" + (os.environ.get(NAME) or start()))
        socket.send_fds(self._parent, [len(request).to_bytes(8)], ends)
        self._parent.sendall(request)
        self._close_pipe_fds(*pipes)
        self.pid = int.from_bytes(_received(self._parent, 8))
        self._child_created = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._parent], [], [], 0)[0]:
            return 0, 0
        with self._parent:
            return self.pid, int.from_bytes(_received(self._parent, 8))

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def _received(connection: socket.socket, count: int) -> bytes:
    data = connection.recv(count, socket.MSG_WAITALL)
    if len(data) < count:
        raise EOFError("the process that forks programs has ended")
    return data


def run(arguments: Sequence[str], seconds: float = 240, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, and returns its exit code and output."""
    with Program(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as program:
        try:
            printed, errors = program.communicate(timeout=seconds)
        except BaseException:
            program.kill()
            raise
    return subprocess.CompletedProcess(program.args, program.returncode, printed, errors)


SCRIPT = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
"""With `-c`, runs a script as Python does, with its arguments."""

PYTHON = f"""#!{sys.executable} -IS
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.programs import run_as_python
run_as_python(sys.argv[1:])
"""
"""A `python` that runs scripts and modules as forks; it imports only what is needed to request one."""


def put_python(folder: Path) -> dict[str, str]:
    """Makes a `python` and a `torchrun` that fork; returns the variables with which they are found."""
    for name in ("python", "torchrun"):
        (folder / name).write_text(PYTHON)
        (folder / name).chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "PYTHON_EXEC": str(folder / "python"), NAME: os.environ.get(NAME) or start()}


def run_as_python(arguments: list[str]) -> None:
    """Runs the arguments of `python` or `torchrun` as a fork, and ends as it does, by a signal too."""
    if Path(sys.argv[0]).name == "torchrun":
        arguments = ["-m", "torch.distributed.run", *arguments]
    elif arguments[0] not in {"-c", "-m"}:
        arguments = ["-c", SCRIPT, *arguments[arguments[0] == "-u" :]]
    code = Program(arguments, cwd=Path.cwd()).wait()
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def start() -> str:
    """Returns the name of the process that forks for this one, with its id; the first call starts it."""
    return _forking_for(os.getpid())


@functools.cache
def _forking_for(_: int) -> str:
    process = subprocess.Popen(
        # Without the folder of this file among the paths, since it has a `numbers.py`.
        [sys.executable, "-P", __file__],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | ONE_THREAD,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(process.communicate)  # which closes its input, and it ends
    # A fork has a copy of that input, and would wait for the end for ever.
    os.register_at_fork(after_in_child=lambda: atexit.unregister(process.communicate))
    assert process.stdout is not None
    return process.stdout.readline().strip()


class _Forks:
    """The programs that run: by the descriptor of its end, the socket of its caller, and its id."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        for source in (sys.stdin, listener):
            self._selector.register(source, selectors.EVENT_READ)
        self._programs: dict[int, tuple[socket.socket, int]] = {}

    def serve(self) -> list[str] | None:
        """Forks until the input is closed; in a fork, returns the arguments of its program."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    for end in list(self._programs):
                        self._end(end)
                    return None
                if key.fileobj is not self._listener:
                    self._end(key.data or key.fd)
                elif arguments := self._fork():
                    return arguments

    def _fork(self) -> list[str] | None:
        connection, _ = self._listener.accept()
        length, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
        arguments, cwd, environment = json.loads(_received(connection, int.from_bytes(length)))
        child = os.fork()
        if child == 0:
            self._close()
            connection.close()
            _become(descriptors, cwd, environment)
            return arguments
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(child.to_bytes(8))
        end = os.pidfd_open(child)
        self._programs[end] = connection, child
        self._selector.register(end, selectors.EVENT_READ)
        self._selector.register(connection, selectors.EVENT_READ, data=end)
        return None

    def _end(self, end: int) -> None:
        """Sends the exit status to the caller; a program whose caller has gone is ended."""
        if end not in self._programs:  # both of its events came at once
            return
        connection, child = self._programs.pop(end)
        self._selector.unregister(end)
        self._selector.unregister(connection)
        if not select.select([end], [], [], 0)[0]:
            with contextlib.suppress(ProcessLookupError):  # it leads no group yet
                os.killpg(child, signal.SIGKILL)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(end)
        with connection, contextlib.suppress(OSError):
            connection.sendall(status.to_bytes(8))

    def _close(self) -> None:
        self._selector.close()
        self._listener.close()
        for end, (connection, _) in self._programs.items():
            os.close(end)
            connection.close()


def _become(descriptors: list[int], cwd: str, environment: dict[str, str]) -> None:
    """Gives a fork the state of a process that Python has just started."""
    os.setsid()
    os.chdir(cwd)
    for own, descriptor in enumerate(descriptors):
        os.dup2(descriptor, own)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.modules["numpy"].random.seed()  # that of `random` is another one in each fork already


def _run(arguments: list[str]) -> None:
    """Runs a program as Python runs its main module."""
    flag, code, *rest = arguments
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = ["" if flag == "-c" else str(Path.cwd()), *filter(None, paths)]
    importlib.invalidate_caches()
    sys.argv = [flag, *rest]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if flag == "-c":
        exec(compile(code, "<string>", "exec"), main.__dict__)  # noqa: S102  # as Python does
    else:
        runpy._run_module_as_main(code)  # type: ignore[attr-defined]  # what Python's own `-m` calls


def main() -> None:
    """Imports modules, prints its name, and forks; a fork ends as any program of Python does."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        name = f"samplerkit-tests-{os.getpid()}"
        listener.bind(f"\0{name}")
        listener.listen(64)
        assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork has one thread only"
        print(name, flush=True)
        arguments = _Forks(listener).serve()
    if arguments:
        _run(arguments)


if __name__ == "__main__":
    main()
