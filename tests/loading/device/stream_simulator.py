"""A device of lazy streams with a caching allocator, which runs the stage under adversarial schedules.

What is simulated: operations run when the schedule lets them, in order within a stream, in any order
between streams but for events. Memory that is freed goes back to the stream on which it was allocated, at
once, unless `record_stream` named another stream to the allocator: then when that stream has done the work
it had at that time. A copy reads its source when it runs, and garbage if the source is gone.

What is real: the stage, the producer, the channel and the order of events. Loop and loading thread take turns
in one thread: a call of either side to the driver may run a whole step of the other one in between. So a
schedule is its seed.
"""

import collections
import contextlib
import random
from dataclasses import dataclass, field

from samplerkit.loading.device.stage import DeviceStage, EpochEnd

GARBAGE = -1


class Event:
    """Passes when its place in a stream is reached."""

    has_passed = False


@dataclass
class Block:
    """Memory of the device for one tensor."""

    content: int = GARBAGE


@dataclass
class Buffer:
    """Memory of the host for one tensor."""

    content: int


class Device:
    """Streams of operations, and an allocator.

    Args:
        chance: the random generator of the schedule.
        haste: how many operations run, on average, whenever the host calls.
    """

    def __init__(self, chance, haste):
        self.chance = chance
        self.haste = haste
        self.streams = [collections.deque() for _ in range(3)]
        self.free = []
        self.pending = []
        self.reserved = self.reads = self.wrong = 0

    def advance(self):
        for _ in range(int(self.chance.expovariate(1.0 / self.haste)) if self.haste else 0):
            if not self.run_one():
                return

    def run_one(self):
        """Runs one operation of a stream that may continue; returns whether there was one."""
        ready = [stream for stream in self.streams if stream and stream[0][0]()]
        if ready:
            self.chance.choice(ready).popleft()[1]()
        return bool(ready)

    def run_until(self, event):
        while not event.has_passed:
            assert self.run_one(), "the host waits for an event that never passes"

    def enqueue(self, stream, work, *, after=None):
        self.streams[stream].append((lambda: after is None or after.has_passed, work))

    def record(self, stream):
        event = Event()
        self.enqueue(stream, lambda: setattr(event, "has_passed", True))
        return event

    def allocate(self):
        done = [entry for entry in self.pending if all(event.has_passed for event in entry[1])]
        for entry in done:
            self.pending.remove(entry)
            self.free.append(entry[0])
        if not self.free:
            self.reserved += 1
            self.free.append(Block())
        return self.free.pop()

    def release(self, block, streams):
        if streams:
            self.pending.append((block, [self.record(stream) for stream in sorted(streams)]))
        else:
            self.free.append(block)

    def copy(self, stream, block, buffer):
        self.enqueue(stream, lambda: setattr(block, "content", buffer.content))

    def read(self, stream, block, expected):
        def check():
            self.reads += 1
            self.wrong += block.content != expected

        self.enqueue(stream, check)


class OnHost:
    """A tensor on the host."""

    def __init__(self, content):
        self.buffer = Buffer(content)

    def to(self, place):
        return place(self)

    def __del__(self):
        self.buffer.content = GARBAGE


class OnDevice:
    """A tensor on the device."""

    def __init__(self, device, content):
        self.device, self.content = device, content
        self.block = device.allocate()
        self.used_by = set()

    def to(self, place):
        return self

    def record_stream(self, stream):
        self.used_by.add(stream)

    def read(self, stream):
        self.device.read(stream, self.block, self.content)

    def __del__(self):
        self.device.release(self.block, self.used_by)


class Wrapped:
    """An object of another library that holds a tensor where nobody finds it."""

    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner

    def to(self, place):
        return Wrapped(self.inner.to(place))

    def read(self, stream):
        self.inner.read(stream)


@dataclass
class SimulatedStreams:
    """The driver, correct, or wrong in one of the ways of other libraries."""

    device: Device
    waits: bool = True
    records: bool = True
    fences: bool = True
    keeps_last: int = 0
    forgets_sources: bool = False
    pins: bool = True
    SIDE = 0
    loop_stream: int = 1
    other_side: object = None
    _last: list = field(default_factory=list)

    def _called(self):
        self.device.advance()
        if self.other_side is not None:
            self.other_side()
        self.device.advance()

    def enter_thread(self):
        pass

    def pin(self, leaf):
        self._called()
        if isinstance(leaf, Wrapped):
            return Wrapped(self.pin(leaf.inner))
        return OnHost(leaf.buffer.content)

    def side(self, sources):
        return contextlib.nullcontext()

    def copy(self, leaf):
        self._called()
        moved = leaf.to(self._place)
        if self.keeps_last:
            self._last = [*self._last, moved][-self.keeps_last :]
        self._called()
        return moved

    def _place(self, source):
        tensor = OnDevice(self.device, source.buffer.content)
        self.device.copy(self.SIDE, tensor.block, source.buffer)
        return tensor

    def receive(self, ready, storages):
        self._called()
        if self.waits:
            self.device.enqueue(self.loop_stream, lambda: None, after=ready)
        if self.records:
            for storage in storages:
                storage.record_stream(self.loop_stream)
        self._called()
        return self.loop_stream

    def record_event(self, stream=SIDE):
        self._called()
        if self.fences or stream == self.SIDE:
            return self.device.record(stream)
        passed = Event()
        passed.has_passed = True
        return passed

    def is_done(self, event):
        return self.forgets_sources or event.has_passed

    def wait(self, event):
        self._called()
        self.device.run_until(event)
        self._called()


class Schedule:
    """One run of the stage over a simulated device.

    Args:
        seed: decides everything.
        depth: of the stage.
        batches: how many the source gives.
        epoch: after how many of them an epoch ends, and another one follows.
        holds: whether the loop keeps some batches for longer than its step.
        loop_streams: among which the loop changes from batch to batch.
        options: how the driver is wrong.
    """

    TENSORS = 3
    """In each batch."""

    def __init__(self, seed, depth, batches=12, *, epoch=99, holds=False, loop_streams=(1,), **options):
        self.chance = random.Random(seed)
        self.device = Device(self.chance, haste=self.chance.choice([0, 0.2, 1, 4]))
        self.streams = SimulatedStreams(self.device, other_side=self._other_side, **options)
        self.streams.pins = self.chance.random() < 0.5
        self.batches, self.epoch = batches, epoch
        self.holds, self.loop_streams = holds, loop_streams
        self.stage = DeviceStage(self._source(), None, depth=depth, streams=self.streams)
        # The producer takes its steps here, and not in a thread.
        self.producer = self.stage._producer
        self.producer.is_started = True
        self.stage._batches._submit()
        self.eagerness = self.chance.choice([0.02, 0.2, 0.5])
        self.inside = set()
        self.produces = self.consumes = True
        self.taken = 0
        self.held = collections.deque()
        self.batch = None

    def run(self):
        """Runs it to its end: `taken` batches, and what the device has counted, with memory in tensors."""
        while self.consumes:
            ready = [step for step in (self._produce, self._consume) if self._can_run(step)]
            assert ready, "loop and loading thread wait for one another"
            self.chance.choice(ready)()
            self.device.advance()
        self.batch = None
        self.held.clear()
        while self.device.run_one():
            pass
        return self

    def _source(self):
        for number in range(self.batches):
            first = number * self.TENSORS
            yield {"a": OnHost(first), "b": [OnHost(first + 1), None, Wrapped(OnHost(first + 2))]}
            if (number + 1) % self.epoch == 0:
                yield EpochEnd()

    def _can_run(self, step):
        if step in self.inside:
            return False
        if step == self._produce:
            return self.produces and self.producer._tasks.qsize() > 0
        tasks = self.stage._batches._tasks
        return self.consumes and bool(tasks) and not tasks[0].result.empty()

    def _other_side(self):
        for step in (self._produce, self._consume):
            while self._can_run(step) and self.chance.random() < self.eagerness:
                step()

    def _produce(self):
        self.inside.add(self._produce)
        task = self.producer._tasks.get()
        self.produces = task is not None and self.producer.step(task)
        self.inside.remove(self._produce)

    def _consume(self):
        """One turn of a training loop: its variable holds the old batch until the new one is there."""
        self.inside.add(self._consume)
        self.streams.loop_stream = self.chance.choice(self.loop_streams)
        try:
            self.batch = next(self.stage)
        except StopIteration:
            self.consumes = False
        else:
            if isinstance(self.batch, EpochEnd):
                self.batch = None
            else:
                self._train()
        self.inside.remove(self._consume)

    def _train(self):
        stream = self.streams.loop_stream
        tensors = [self.batch["a"], self.batch["b"][0], self.batch["b"][2]]
        assert [self._content(tensor) for tensor in tensors] == [
            self.taken * self.TENSORS + k for k in range(self.TENSORS)
        ]
        self.taken += 1
        for tensor in tensors * self.chance.randint(1, 3):
            tensor.read(stream)
            self.device.advance()
        if self.holds and self.chance.random() < 0.3:
            # Only tensors that the allocator knows of may be used after the step.
            self.held.append((stream, tensors[:2]))
        for used_on, older in list(self.held):
            for tensor in older:
                tensor.read(used_on)
        if self.held and self.chance.random() < 0.3:
            self.held.popleft()
        if self.chance.random() < 0.5:
            # Handles are dropped as soon as the work is enqueued.
            self.batch = None

    @staticmethod
    def _content(tensor):
        return tensor.inner.content if isinstance(tensor, Wrapped) else tensor.content
