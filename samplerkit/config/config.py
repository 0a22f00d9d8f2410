"""A config: the dataset, the sampler and the loader options of a run, as one value."""

from __future__ import annotations

import copy
import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch.utils.data

from samplerkit.batches.recipe import BatchRecipe
from samplerkit.config.datasets import DATASETS, with_layout
from samplerkit.config.derive import Parsed
from samplerkit.config.error_messages import from_constructor, require_known_keys, require_mapping
from samplerkit.config.reading import Folder, parse, plain, text_and_folder
from samplerkit.config.registry import BATCHES, SAMPLERS, json_schema
from samplerkit.config.sections import LOADER, SECTION, LoaderOptions, MinQuality, read_min_quality
from samplerkit.errors import ConfigError, SamplerkitError
from samplerkit.inspect.quality.figure import Figure
from samplerkit.loading.loader import Loader
from samplerkit.loading.run.run import beginning_of
from samplerkit.loading.sample_fields import batch_of
from samplerkit.loading.torch_sampler import TorchBatchSampler, TorchSampler
from samplerkit.loading.world import world_of
from samplerkit.order import arguments
from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.groups import PKSampler
from samplerkit.storage.urls import shown

_SECTIONS: Mapping[str, Callable[[Any, str, Folder], Parsed]] = {
    "dataset": DATASETS.read,
    "sampler": SAMPLERS.read,
    "loader": LOADER.read,
    "batches": BATCHES.read,
    SECTION: read_min_quality,
}
"""The function that reads each section."""

_EXAMPLE = f"sampler: {SAMPLERS.example}"


@final
@dataclass(frozen=True, eq=False)
class Config:
    """The objects that a config describes; made by `load_config`.

    Two configs are equal if their data are equal.

    Attributes:
        dataset: the dataset; its layout for the kinds `size` and `layout`; or None if the config has no
            dataset section: pass your own dataset from Python.
        sampler: the chain of samplers.
        loader: the options of the DataLoader.
        min_quality: the mixing that the order must reach; None for no limit.
        batches: the recipe for batches of samples of different lengths; None for batches of
            `loader.batch_size` samples.

    Example:
        >>> config = Config.from_yaml('''
        ... dataset: {kind: layout, sizes: [5000, 7000, 300]}
        ... sampler:
        ...   kind: distributed
        ...   shuffle: files
        ...   num_shards: auto
        ... loader: {batch_size: 256}
        ... ''')
        >>> config.dataset, len(config.sampler.order(config.dataset)), config.loader.batch_size
        (Layout([5000, 7000, 300]), 12300, 256)
        >>> load_config(config.to_dict()) == config
        True
    """

    dataset: Any
    sampler: Sampler
    loader: LoaderOptions
    _written: dict[str, Any] = field(repr=False)
    min_quality: MinQuality | None = None
    batches: BatchRecipe | None = None
    _checks_quality: bool = field(default=True, repr=False)
    _places: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def from_yaml(cls, text: str) -> Config:
        """Reads YAML text; relative paths start from the working directory.

        Raises:
            ConfigError: the text has a mistake; the error has its line, or the path of the key and the value.
        """
        if not isinstance(text, str):
            # The value is not shown: it has no keys by which private parts could be recognized.
            raise ConfigError("config", "must be a string of YAML", hint="use load_config for the rest")
        return _build(parse(text), Path())

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Returns the JSON Schema of configs, including registered samplers."""
        return json_schema()

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data from which `load_config` makes an equal config.

        Arguments with default values are left out, arrays are lists, and a `.npy` file is a path relative to
        the working directory.
        """
        return copy.deepcopy(self._written)

    def dataloader(self, dataset: Any = None, world: World | None = None) -> torch.utils.data.DataLoader[Any]:
        """Makes a plain torch DataLoader that reads a dataset in the order of the sampler.

        Args:
            dataset: a map-style dataset; a dataset section of the config then provides its layout. None for
                the dataset of the config, if that is more than a layout.
            world: the rank of this process and the number of ranks; None takes them from the running job.

        Raises:
            ConfigError: the dataset does not match the config, or there is none.

        Example:
            >>> config = load_config({"sampler": {"kind": "sequential"}, "loader": {"batch_size": 2}})
            >>> [batch for batch in config.dataloader(["a", "b", "c"])]
            [['a', 'b'], ['c']]
        """
        options = self.loader.of_torch()
        placed = self._checked_dataset(dataset, world, self.loader.batch_size)
        sampler = TorchSampler(self.sampler, placed, world)
        batches = TorchBatchSampler(sampler, drop_last=options.pop("drop_last"), **self._batching)
        del options["batch_size"]
        read = placed if dataset is None else dataset
        return torch.utils.data.DataLoader(read, batch_sampler=batches, collate_fn=batch_of, **options)

    def make_loader(self, dataset: Any = None, world: World | None = None, **options: Any) -> Loader:
        """Makes a samplerkit `Loader`, which reads in the order of the sampler and has exactly-once state.

        Args:
            dataset: as for `dataloader`.
            world: as for `dataloader`.
            options: options of `Loader`, such as `collate_fn`; they take precedence over those of the config.

        Raises:
            ConfigError: the dataset does not match the config, or there is none.

        Example:
            >>> config = load_config({"sampler": {"kind": "sequential"}, "loader": {"batch_size": 2}})
            >>> config.make_loader(["a", "b", "c"]).state_dict(step=1)["position"]
            2
        """
        entries = self.loader.of_ours()
        size = options.get("batch_size") or entries.pop("batch_size")
        given = {**entries, **({} if {"batch_size", "batches"} & {*options} else self._batching), **options}
        return Loader(self._checked_dataset(dataset, world, size), self.sampler, world=world, **given)

    def check_quality(self, dataset: Any = None, world: World | None = None) -> list[Figure]:
        """Compares the order with `min_quality`, as `load_config` and `make_loader` do.

        Args:
            dataset: the dataset; None for that of the config.
            world: the ranks of the first start; None takes them from the sampler, then from the running job.

        Returns:
            The figures of `min_quality`; without label mixing if no labels are known.

        Raises:
            ConfigError: a figure is too low, or there is no dataset.

        Example:
            >>> written = {"dataset": {"kind": "layout", "sizes": [100] * 64}, "sampler": {"kind": "random"}}
            >>> print(load_config({**written, "min_quality": 0.9}).check_quality()[0])
            mixing 1.000 (exact; weakest 1.000 in windows of 2)
        """
        if dataset is None and self.dataset is None:
            raise ConfigError("dataset", "is missing", hint="give one, or write a dataset section")
        source = self.dataset if dataset is None else with_layout(dataset, self.dataset)
        return self._figures(source, world, self.loader.batch_size)

    def check_order(self, dataset: Any = None, world: World | None = None) -> None:
        """Builds the order once, from the sizes of files (for `pk`, from labels), and then a first batch.

        Args:
            dataset: as for `check_quality`.
            world: as for `check_quality`.

        Raises:
            ConfigError: the sampler or the batches do not fit the dataset; `place` is the path of the key.

        Example:
            >>> load_config({"sampler": {"kind": "weighted_random", "weights": [1, 2]}}).check_order([0])
            Traceback (most recent call last):
            samplerkit.errors.ConfigError: sampler.weights: are more than the 1 samples of the dataset, got 2
        """
        sampler, source = self.sampler, self.dataset if dataset is None else dataset
        try:
            constants = sampler.chain.constants(world)
            sampler.undealt_order(source, constants=constants)
            beginning_of(sampler, source)
        except SamplerkitError as error:
            places = zip(self._places, sampler._tree(), strict=True)
            by_id = {id(link): (place, link) for place, link in places}
            place, link = by_id.get(error._sampler_id or 0, by_id[id(sampler)])
            raise _error_at_key(place, error, link) from None
        if self.batches is not None:
            try:
                self.batches.plan(sampler, source, constants=constants).has(0)
            except SamplerkitError as error:
                raise _error_at_key("batches", error, self.batches) from None

    @property
    def _batching(self) -> dict[str, Any]:
        """The loader arguments for what a rank reads in a step: a batch size, or a recipe for batches."""
        return {"batch_size": self.loader.batch_size} if self.batches is None else {"batches": self.batches}

    def _checked_dataset(self, dataset: Any, world: World | None, batch_size: int) -> Any:
        """Adds the layout of the config to the dataset, and checks the quality of the order."""
        source = with_layout(dataset, self.dataset)
        if self._checks_quality:
            self._figures(source, world, batch_size)
        return source

    def _figures(self, source: Any, world: World | None, batch_size: int) -> list[Figure]:
        if self.min_quality is None:
            return []
        try:
            # As in a loader: a chain that does not deal to ranks itself is dealt to those of the job.
            job = world_of(self.sampler, world)
            return self.min_quality.check(self.sampler, source, job, batch_size)
        except ConfigError:
            raise
        except SamplerkitError as error:
            reason = error
            try:
                self.check_order(source, world)
            except ConfigError as located:
                reason = located
            raise ConfigError(SECTION, f"cannot be computed ({reason})") from error

    def __eq__(self, other: object) -> bool:
        return self._written == other._written if isinstance(other, Config) else NotImplemented

    def __hash__(self) -> int:
        return hash(json.dumps(self._written, sort_keys=True, default=str))


def load_config(source: str | os.PathLike[str] | Mapping[str, Any], *, check_quality: bool = True) -> Config:
    """Reads a config.

    Args:
        source: the path or URL of a YAML file, whose relative paths start from its folder; or a mapping,
            whose paths start from the working directory. URLs are read with the credentials of the
            environment.
        check_quality: whether the order is checked against `min_quality` here, if there is a dataset section,
            and again when a loader is made.

    Returns:
        The config, frozen, with its sampler built.

    Raises:
        ArgumentTypeError: `check_quality` is not a bool.
        ConfigError: the file cannot be read; a key, a type, a value or the nesting is wrong; or the order
            does not reach `min_quality`. The error's `place` is the path of the key.

    Example:
        >>> config = load_config({"sampler": {"kind": "random", "seed": 7}})
        >>> len(config.sampler.order(1000)), config.loader.batch_size
        (1000, 1)
        >>> load_config({"sampler": {"kind": "random", "sed": 7}})
        Traceback (most recent call last):
        samplerkit.errors.ConfigError: sampler.sed: is not a key of random, got 7; did you mean seed?
    """
    arguments.boolean("check_quality", check_quality)
    if isinstance(source, Mapping):
        return _build(source, Path(), check_quality)
    text, name, folder = text_and_folder(source)
    try:
        return _build(parse(text, shown(name).rpartition("/")[2]), folder, check_quality)
    except ConfigError as error:
        error.add_note(f"in the config file {shown(name)}")
        raise


def _build(document: Any, folder: Folder, check_quality: bool = True) -> Config:
    if document is None:
        raise ConfigError("config", "is empty", hint=f"write for instance {_EXAMPLE}")
    sections = require_mapping(plain(document), "config", _EXAMPLE)
    require_known_keys("", sections, _SECTIONS, "a config")
    if sections.get("sampler") is None:
        raise ConfigError("sampler", "is missing", hint=f"write for instance {_EXAMPLE}")
    entries = {"loader": {}, **{name: section for name, section in sections.items() if section is not None}}
    parts = {name: read(entries[name], name, folder) for name, read in _SECTIONS.items() if name in entries}
    values: dict[str, Any] = {name: parts[name].value if name in parts else None for name in _SECTIONS}
    _require_one_size(entries, values["batches"], values["loader"])
    written = {name: part.written for name, part in parts.items() if part.written}
    config = Config(
        **values, _written=written, _checks_quality=check_quality, _places=tuple(parts["sampler"].places)
    )
    lacks_samples = isinstance(config.dataset, Layout) and _needs_samples(config.sampler)
    if check_quality and config.dataset is not None and not lacks_samples:
        config.check_quality()
    return config


def _error_at_key(place: str, error: SamplerkitError, obj: Any) -> ConfigError:
    names = inspect.signature(type(obj)).parameters
    return from_constructor(place, error, names, type(obj).__name__, {})


def _require_one_size(sections: dict[str, Any], recipe: BatchRecipe | None, options: LoaderOptions) -> None:
    """Refuses options for batches of one size together with a recipe for batches, and the reverse.

    Args:
        sections: the sections of the config.
        recipe: the recipe of the section `batches`; None without the section.
        options: the options of the section `loader`.

    Raises:
        ConfigError: there is a recipe together with `loader.batch_size` or `min_quality`; or `loader.tail`
            is `split` without a recipe.
    """
    if recipe is None:
        if getattr(options, "tail", None) == "split":
            hint = f"write for instance batches: {BATCHES.example}, or tail: ragged"
            problem = "splits batches of samples of different lengths"
            raise ConfigError("loader.tail", problem, "split", hint=hint)
        return
    if "batch_size" in (sections.get("loader") or {}):
        hint = "leave out one of the two: batches defines the size of a batch"
        raise ConfigError("loader.batch_size", "conflicts with batches", options.batch_size, hint=hint)
    if sections.get(SECTION) is not None:
        hint = "leave it out: plans of batches are mixed by themselves, and samplerkit plan shows how well"
        raise ConfigError(SECTION, "conflicts with batches, whose mixing it cannot measure", hint=hint)


def _needs_samples(sampler: Sampler) -> bool:
    """Returns whether a chain needs the dataset itself, for labels, so that a layout is not enough."""
    return any(isinstance(link, PKSampler) and link.labels is None for link in sampler._tree())
