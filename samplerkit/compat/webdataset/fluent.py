"""webdataset's fluent interface, whose methods return a new dataset without reading; and `WebLoader`."""

from collections.abc import Callable, Generator, Iterator
from copy import copy
from dataclasses import replace
from functools import partial as bound
from itertools import chain, islice
from typing import Any, Self, final

from torch.utils.data import DataLoader

from samplerkit.compat.webdataset import arguments as checks
from samplerkit.compat.webdataset import stages
from samplerkit.compat.webdataset.handlers import Handler
from samplerkit.compat.webdataset.reading import FOREVER, SamplePipeline, WorkerPlace, WorkerSlot
from samplerkit.compat.webdataset.stages import default_collation_fn, tensors
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, CompositionError, DatasetError
from samplerkit.order import arguments
from samplerkit.storage.tar import steps
from samplerkit.storage.tar.codecs import Decode
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.steps import Step


class Fluent:
    """The methods that add stages to a dataset."""

    _pipeline: SamplePipeline

    def shuffle(
        self, size: int, *, seed: int | None = None, initial: Any = None, rng: Any = None, handler: Any = None
    ) -> Self:
        """Shuffles the shards, then the samples within windows of at least `size`; each epoch differs.

        The order is a computed permutation of the whole epoch, without a buffer: mode PARTIAL. The position
        in the pipeline does not matter. What commands or a `WebLoader` yield has no order that could be
        computed: there `size` is that of a buffer, at this position.

        Args:
            size: the samples in a window, or batches after `.batched`; 0 for no shuffle.
            seed: the seed of the order; None for that of the dataset.
            initial: not needed: there is no buffer to fill.
            rng: refused: an order depends only on seed and epoch.
            handler: not needed.
        """
        checks.refuse(rng=rng)
        number = arguments.integer("shuffle", size)
        if number < 1:
            return self
        pipeline = self._pipeline
        seeded = self if seed is None else self._replace(seed=arguments.seed("seed", seed))
        if isinstance(pipeline.shards, TarDataset | DatasetError):
            return seeded._replace(window=max(pipeline.window, number * stages.batch_size(pipeline.stages)))
        buffer = stages.Uncounted("shuffle", bound(stages.in_buffer, number), draws=True)
        return seeded._replace(shuffles_shards=True)._with(buffer)

    def decode(
        self,
        *handlers: Any,
        pre: Any = None,
        post: Any = None,
        only: Any = None,
        partial: bool = True,
        handler: Handler | None = None,
    ) -> Self:
        """Decodes fields by their extensions, as `TarDataset.decode`, and `.ten` too; pickles are refused.

        Args:
            handlers: image specifications such as `pil`, and functions of an extension (".jpg") and bytes.
            pre: further functions, which are called first.
            post: refused: text, numbers, JSON and arrays are always decoded.
            only: the fields to decode; None for all.
            partial: not needed: fields that are not bytes are not changed.
            handler: called if a sample cannot be decoded.
        """
        checks.refuse(post=post)
        return self._with_step("decode", Decode((*(pre or ()), *handlers, tensors), only), handler)

    def rename(self, handler: Handler | None = None, keep: bool = True, **fields: Any) -> Self:
        """Renames fields: `rename(image="jpg;png")` takes the first that a sample has.

        Args:
            handler: called if a sample has none of the fields.
            keep: whether other fields are kept.
            fields: the old names for each new name.
        """
        rename = steps.rename if arguments.boolean("keep", keep) else stages.only
        return self._with_step("rename", bound(rename, steps.renames_of(fields)), handler)

    def map_dict(self, handler: Handler | None = None, **functions: Callable[[Any], Any]) -> Self:
        """Applies functions to fields, by name."""
        return self._with_step("map_dict", steps.mapping(functions), handler)

    def map_tuple(self, *functions: Callable[[Any], Any] | None, handler: Handler | None = None) -> Self:
        """Applies a function to each entry of a tuple; None leaves an entry unchanged."""
        checked = tuple(f if f is None else arguments.function("map_tuple", f) for f in functions)
        return self._with_step("map_tuple", bound(stages.map_tuple, checked), handler)

    def map(self, f: Callable[[Any], Any], handler: Handler | None = None) -> Self:
        """Applies a function to each item; items for which it returns None are dropped, as in webdataset."""
        return self._with_step("map", bound(stages.map_or_drop, arguments.function("map", f)), handler)

    def to_tuple(
        self,
        *fields: Any,
        handler: Handler | None = None,
        missing_is_error: bool = True,
        none_is_error: bool | None = None,
    ) -> Self:
        """Makes a tuple of some fields; `"jpg;png"` takes the first that a sample has.

        Args:
            fields: the names; a single string may have several names separated by spaces.
            handler: called if a sample lacks a field.
            missing_is_error: whether a missing field is an error; if False, it becomes None.
            none_is_error: whether a field that is None is an error; None for the value of `missing_is_error`.
        """
        is_refused = missing_is_error if none_is_error is None else none_is_error
        to_tuple = steps.to_tuple if missing_is_error else stages.to_tuple_or_none
        dataset = self._with_step("to_tuple", bound(to_tuple, steps.fields_of(fields)), handler)
        return dataset._with_step("to_tuple", stages.without_none, handler) if is_refused else dataset

    def select(self, predicate: Callable[[Any], Any], handler: Handler | None = None) -> Self:
        """Keeps the samples for which a function returns a true value.

        If the number of samples must be known, as for `equal_steps`, select by key before: give
        `TarDataset(urls).select(predicate, by="key")` as the shards.

        Args:
            predicate: a function of the item at this position of the pipeline.
            handler: called if `predicate` raises an error.
        """
        step = bound(stages.select, arguments.function("select", predicate))
        return self._with(stages.ItemStep("select", step, checks.handler_of(handler), may_drop=True))

    def batched(
        self,
        batchsize: int,
        collation_fn: Callable[[list[Any]], Any] | None = default_collation_fn,
        partial: bool = True,
    ) -> Self:
        """Makes batches; give them to a DataLoader with `batch_size=None`.

        Args:
            batchsize: the number of samples in a batch.
            collation_fn: makes a batch from a list of samples; None keeps the list.
            partial: whether the last, smaller batch is kept: at most one per rank.
        """
        size = arguments.positive("batchsize", batchsize)
        if collation_fn is not None:
            arguments.function("collation_fn", collation_fn)
        return self._with(stages.Batched(size, collation_fn, arguments.boolean("partial", partial)))

    def unbatched(self) -> Self:
        """Splits batches into samples."""
        return self._with(stages.Uncounted("unbatched", stages.unbatched))

    def listed(self, batchsize: int, partial: bool = True) -> Self:
        """Makes lists of samples."""
        return self.batched(batchsize, None, partial)

    def unlisted(self) -> Self:
        """Splits lists into samples."""
        return self._with(stages.Uncounted("unlisted", chain.from_iterable))

    def rsample(self, p: float = 0.5) -> Self:
        """Keeps each item with probability `p`: different items in each epoch, determined by the seed."""
        share = arguments.number("p", p)
        if not 0 <= share <= 1:
            raise ArgumentValueError("p", "must be between 0 and 1", p)
        return self._with(stages.Uncounted("rsample", bound(stages.by_chance, share), draws=True))

    def slice(self, *bounds: int | None) -> Self:
        """Keeps a part of the items of each worker, as `itertools.islice` does."""
        islice((), *bounds)  # raises now what it would raise when it is read
        return self._with(stages.Uncounted("slice", bound(stages.in_slice, bounds)))

    def compose(self, *functions: Callable[[Iterator[Any]], Any]) -> Self:
        """Adds functions of your own or of `webdataset.filters`, from an iterator to an iterable."""
        checked = (arguments.function("compose", function) for function in functions)
        return self._with(*(stages.Uncounted("compose", function) for function in checked))

    pipe = compose
    """The older name of `compose`."""

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """Makes an iteration yield a fixed number of items in each worker, from as many passes as needed.

        So all ranks make the same number of steps, even if the pipeline drops samples.
        """
        most = max(arguments.integer("nsamples", nsamples), arguments.integer("nbatches", nbatches))
        return self._replace(passes=FOREVER, most_items=arguments.positive("with_epoch", most))

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """Makes an iteration read the dataset several times, in another order each time.

        This replaces an earlier `with_epoch`, as in webdataset.

        Args:
            nepochs: how many times; -1 for no end.
            nbatches: the largest number of items in each worker; -1 for no limit.
        """
        passes, most = arguments.integer("nepochs", nepochs), arguments.integer("nbatches", nbatches)
        return self._replace(passes=passes if passes > 0 else FOREVER, most_items=most if most > 0 else None)

    def with_length(self, n: int, silent: bool = False) -> Self:  # webdataset's
        """Sets the value of `len`, without changing the epoch.

        Args:
            n: the length.
            silent: not needed.
        """
        return self._replace(length=arguments.at_least("with_length", n, 0))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()" + "".join(f".{stage.name}()" for stage in self._pipeline.stages)

    def _with_step(self, name: str, step: Step, handler: Handler | None) -> Self:
        return self._with(stages.ItemStep(name, step, checks.handler_of(handler)))

    def _with(self, *added: stages.Stage) -> Self:
        wrong = stages.uncounted(added)
        if wrong is not None and self._pipeline.equal_steps is not None:
            problem = f"cannot be kept by .{wrong.name}, which changes the number of samples"
            raise CompositionError("equal_steps", problem, hint="leave equal_steps out and use with_epoch(n)")
        all_stages = (*self._pipeline.stages, *added)
        size = stages.batch_size(all_stages)
        return self._replace(stages=all_stages, batch_size=size if size > 1 else self._pipeline.batch_size)

    def _replace(self, **changes: Any) -> Self:
        """Returns the dataset with another pipeline."""
        other = copy(self)
        other._pipeline = replace(self._pipeline, **changes)
        return other


@final
class WebLoader(Fluent):
    """torch's DataLoader with webdataset's methods, which are applied to batches in the main process.

    If you do not need these methods, use the DataLoader itself. There is no need to mix the batches of
    workers by `.unbatched().shuffle(n).batched(m)`: a larger `.shuffle(n)` of the dataset has the same effect
    without a buffer.

    Args:
        arguments: positional arguments of `torch.utils.data.DataLoader`.
        options: keyword arguments of `torch.utils.data.DataLoader`.

    Example:
        >>> loader = WebLoader([1, 2, 3, 4, 5], batch_size=2).unlisted().map(int).listed(3)
        >>> list(loader)
        [[1, 2, 3], [4, 5]]
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._loader: DataLoader[Any] = DataLoader(*arguments, **options)
        self._pipeline = SamplePipeline(self._batches, may_be_empty=True)
        self._epoch = 0

    def __iter__(self) -> Iterator[Any]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self._pipeline.items(WorkerSlot.current(), WorkerPlace(epoch))

    def __len__(self) -> int:
        pipeline = self._pipeline
        if pipeline.length is not None:
            return pipeline.length
        if pipeline.stages or pipeline.passes != 1:
            raise ArgumentTypeError("len", "is not known for this loader", self, hint="use .with_length(n)")
        return len(self._loader)

    def _batches(self, *_: object) -> Generator[Any, None, None]:
        yield from self._loader
