"""Worker processes: their start, batches and end; if one dies, that is an error, never a hang."""

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import select
import socket
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import cycle
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils.worker import WorkerInfo

from samplerkit.errors import WorkerError
from samplerkit.loading.background import end_at_exit
from samplerkit.loading.workers.protocol import Answer, Request, WorkerPool, timed_out
from samplerkit.loading.workers.worker_side import receive, run_worker, socket_of, unpickled

_GRACE_SECONDS = 0.5
"""How long finished batches may still arrive before the other workers are ended too."""

_HINT = (
    "-9: probably out of memory, and the system's log (dmesg) names killed processes; another negative "
    "number: a crash in native code; 0 or a positive one: KeyboardInterrupt, sys.exit or os._exit"
)
"""What to do where a worker died, by its exit code."""


class _Worker(NamedTuple):
    """A worker process and its pipe, in the loop's process."""

    process: Any
    pipe: Connection


class _Task(NamedTuple):
    """A batch that is under way: the request, and what of it each worker makes."""

    request: Request
    number: int
    shares: list[tuple[int, Request]]


class WorkerProcesses(WorkerPool):
    """Worker processes, each with its own pipe for requests and answers.

    torch has one queue for all answers, whose lock a worker may hold when it dies: then all wait forever. A
    pipe ends with its worker.

    Args:
        maker: makes batches of requests.
        number: of workers.
        options: of the DataLoader.
    """

    def __init__(self, maker: Any, number: int, options: Mapping[str, Any]) -> None:
        super().__init__(maker, number, options)
        self._workers: list[_Worker] = []
        self._sent = 0
        self._turn: Iterator[int] = iter(())
        self._end_flag: Any = None
        self._polls: list[select.poll] = []

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [worker.process.pid for worker in self._workers]

    def open(self, requests: Iterator[Request]) -> Iterator[Answer]:
        """Begins an iteration, and the first one begins the workers."""
        if not self._workers:
            self._start()
        # Not by the step: with `run_ahead`, epochs of few steps keep all workers busy.
        self._turn = cycle(range(self._number))
        return super().open(requests)

    def _start(self) -> None:
        end_at_exit(self)
        context: Any = self._options.get("multiprocessing_context")
        if not isinstance(context, multiprocessing.context.BaseContext):
            context = multiprocessing.get_context(context)
        self._end_flag = context.RawValue("b", 0)
        # Without a generator, torch would draw the seed from the process-wide one.
        generator = self._options.get("generator") or torch.Generator()
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
        try:
            for number in range(self._number):
                self._start_one(context, number, seed + number)
        except BaseException:
            self.close()
            raise
        sentinels = [worker.process.sentinel for worker in self._workers]
        # `multiprocessing.connection.wait` registers all of them for each batch, which takes long.
        self._polls = [_poll_of([worker.pipe.fileno(), *sentinels]) for worker in self._workers]

    def _start_one(self, context: Any, number: int, seed: int) -> None:
        pipe, worker_end = context.Pipe()
        init = self._options.get("worker_init_fn")
        info = WorkerInfo(id=number, num_workers=self._number, seed=seed, dataset=self._maker.dataset)
        args = self._maker, info, init, worker_end, self._end_flag
        process = context.Process(target=run_worker, args=args, daemon=True)
        self._workers.append(_Worker(process, pipe))
        process.start()
        # Workers ignore SIGTERM, and a `join` after it would wait for ever.
        process.terminate = partial(type(process).kill, weakref.proxy(process))
        worker_end.close()  # the pipe ends with the worker, which alone has this end

    def submit(self, request: Request) -> _Task:
        """Sends a request to the workers that make its batch."""
        self._sent += 1
        task = _Task(request, self._sent, self.shares_of(request))
        try:
            for worker, share in task.shares:
                with contextlib.suppress(OSError):  # where it has died, no answer will come
                    self._workers[worker].pipe.send_bytes(ForkingPickler.dumps((task.number, share)))
        except BaseException:
            self.is_stopped = True  # it is not known what was sent
            raise
        return task

    def receive(self, task: _Task) -> Answer:
        """Waits for the batch of a task.

        Raises:
            WorkerError: a worker died, or the batch did not come in time.
        """
        try:
            answers = [self._answer(task, worker) for worker, _ in task.shares]
            batch = self.joined(task.request, task.shares, answers)
            return batch.pin_memory() if self._maker.pins else batch
        except BaseException:
            self.is_stopped = True  # it is not known what would come next
            raise

    def shares_of(self, request: Request) -> list[tuple[int, Request]]:
        """Returns the share of each worker in a request: here all of it for one worker, in turn."""
        return [(next(self._turn), request)]

    def joined(self, request: Request, shares: list[tuple[int, Request]], answers: list[Answer]) -> Answer:
        """Returns the batch of the answers to all shares."""
        return answers[0]

    def _answer(self, task: _Task, worker: int) -> Answer:
        """Returns the answer of a worker to its share of a task, or raises its exception."""
        try:
            number = 0
            while number != task.number:  # those of an iteration that was left come first
                number, message, storages = self._message(worker)
            answer = unpickled(message, storages)
        except Exception as error:
            if dead := self._dead_workers(seconds=_GRACE_SECONDS * isinstance(error, EOFError | OSError)):
                problem = "a worker process died (exit codes by process id; -9 is SIGKILL)"
                raise WorkerError("worker", problem, dead, hint=_HINT) from error
            # Not raised as another error: it may come from a signal handler.
            task.request.note(error, f"receiving {task.request.some_ids}")
            raise
        if isinstance(answer, ExceptionWrapper):
            answer.reraise()  # type: ignore[no-untyped-call]
        result: Answer = answer
        return result

    def _message(self, worker: int) -> tuple[int, memoryview, list[torch.UntypedStorage]]:
        """Waits for what a worker sends next: the number of a task, and its answer.

        It may itself wait for another worker that has died, so the wait is then limited.
        """
        pipe = self._workers[worker].pipe
        ready = dict(self._polls[worker].poll(self.timeout and 1000 * self.timeout))
        if not ready:
            raise timed_out("a worker process", self.timeout)
        if pipe.fileno() not in ready and not pipe.poll(_GRACE_SECONDS):
            raise EOFError
        return receive(pipe)

    def _dead_workers(self, *, seconds: float) -> dict[int, int]:
        """The exit codes of the workers that died, by process id; one that is dying is waited for."""
        sentinels = {worker.process.sentinel: worker.process for worker in self._workers}
        # A broken pipe can be seen a moment before its worker has ended, and so can its sentinel.
        for ended in multiprocessing.connection.wait(sentinels, seconds):
            sentinels[ended].join(_GRACE_SECONDS)
        codes = {process.pid: process.exitcode for process in sentinels.values()}
        return {pid: code for pid, code in codes.items() if code is not None}

    def stop(self) -> None:
        """Asks the workers to end, when they are done with the batch that they are at."""
        self.is_stopped = True
        if self._end_flag is not None:
            self._end_flag.value = 1
        for worker in self._workers:
            # Its end for the worker. The pipe stays, for another thread may be about to write to it.
            with contextlib.suppress(OSError), socket_of(worker.pipe) as peer:
                peer.shutdown(socket.SHUT_WR)

    def join(self, deadline: float) -> None:
        """Waits for the workers until a time of the monotonic clock, and kills those that have not ended."""
        for worker in self._workers:
            if worker.process.pid is not None:  # else its start was cut off
                worker.process.join(max(0.0, deadline - time.monotonic()))
                worker.process.kill()
                worker.process.join()
        self._workers = []  # a thread that still reads has its pipe until it is done

    def __del__(self) -> None:
        if self._workers and not sys.is_finalizing():
            self.close()


def _poll_of(descriptors: list[int]) -> select.poll:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll
