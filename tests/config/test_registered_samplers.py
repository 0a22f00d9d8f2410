"""A user's samplers in a config: read by their own signature, as ours are."""

import inspect
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from pydantic import Field

import samplerkit as sk
from samplerkit.config.constructor import Constructor
from samplerkit.config.datasets import DATASETS
from samplerkit.config.derive import default_of
from samplerkit.config.registry import BATCHES, SAMPLERS
from samplerkit.storage.tar.dataset import TarDataset
from tests.config.answers import SIZE, refused, valid


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Strided(sk.Sampler):
    """Every so many samples."""

    def __init__(
        self,
        step: int,
        num_samples: int | None = None,
        *,
        starts: Sequence[int] | None = None,
        colour: Colour = Colour.RED,
        pair: tuple[int, int] = (0, 0),
        mode: Literal["up", "down"] = "up",
        ratio: Annotated[float, Field(gt=0)] = 1.0,
        either: int | str = 0,
        model_config: str = "",
        copy: bool = False,
    ) -> None:
        super().__init__(num_samples)
        if step < 1:
            raise ValueError(f"a step of {step} goes nowhere")
        self.step, self.starts, self.colour, self.pair = step, starts, colour, pair
        self.rest = (mode, ratio, either, model_config, copy)

    def draw(self, layout, context):
        return np.arange(0, len(layout), self.step)


STRIDED = {
    "kind": "tests_strided",
    "step": 7,
    "starts": [1, 2],
    "colour": "blue",
    "pair": [3, 4],
    "mode": "down",
    "ratio": 2,
    "either": "x",
    "model_config": "y",
    "copy": True,
}


sk.register_sampler("tests_strided", Strided)


def test_a_registered_sampler_is_read_by_its_own_signature():
    config = sk.load_config({"sampler": {"kind": "random", "child": STRIDED}})
    strided = config.sampler.get_child()
    assert isinstance(strided, Strided)
    assert (strided.starts, strided.colour, strided.pair) == ([1, 2], Colour.BLUE, (3, 4))
    assert strided.rest == ("down", 2.0, "x", "y", True)
    assert sorted(config.sampler.order(SIZE)) == [0, 7, 14, 21, 28]
    assert config.to_dict()["sampler"]["child"] == STRIDED
    assert valid(config.to_dict(), sk.Config.json_schema())


def test_a_registered_sampler_is_named_by_its_module_and_name_in_the_other_spellings():
    target = f"{Strided.__module__}.Strided"
    for section in ({"_target_": target, "step": 7}, {"class_path": target, "init_args": {"step": 7}}):
        config = sk.load_config({"sampler": section})
        assert config.to_dict()["sampler"] == {"kind": "tests_strided", "step": 7}
    with pytest.raises(sk.ConfigError, match="names no class"):
        sk.load_config({"sampler": {"_target_": "samplerkit.Strided", "step": 7}})


@pytest.mark.parametrize(
    ("given", "place", "fragment"),
    [
        ({}, "sampler.step", "is missing"),
        ({"step": 0}, "sampler", "refuses its arguments (ValueError: a step of 0 goes nowhere)"),
        ({"step": 7, "colour": "pink"}, "sampler.colour", "must be 'red' or 'blue'"),
        ({"step": 7, "pair": [1, "2"]}, "sampler.pair[1]", "must be a valid integer"),
        ({"step": 7, "either": 1.5}, "sampler.either", "must be a valid integer or a valid string"),
    ],
)
def test_a_mistake_in_a_registered_sampler_is_as_clear_as_in_ours(given, place, fragment):
    caught = refused(sk.load_config, {"sampler": {"kind": "tests_strided", **given}})
    assert caught.place == place
    assert fragment in str(caught)


def test_a_mapping_of_samplers_has_sections_and_any_other_mapping_is_passed_as_it_is():
    class Sources(sk.Sampler):
        def __init__(self, sources: Mapping[str, sk.Sampler], rest: typing.Mapping) -> None:  # type: ignore[type-arg]
            super().__init__(None)
            self.sources, self.rest = sources, rest

    if "tests_sources" not in SAMPLERS:
        sk.register_sampler("tests_sources", Sources)
    section = {"kind": "tests_sources", "sources": {"web": {"kind": "sequential"}}, "rest": {"a": [1]}}
    config = sk.load_config({"sampler": section})
    assert isinstance(config.sampler.sources["web"], sk.SequentialSampler)
    assert config.to_dict()["sampler"] == section


def test_an_array_in_place_of_a_default_array_is_read_and_written():
    first = np.arange(3)

    def starting(starts: np.ndarray = first) -> int:  # type: ignore[type-arg]
        return starts.size

    parsed = Constructor("starting", starting).read({"starts": np.arange(3)}, "sampler", Path())
    assert (parsed.value, parsed.written) == (3, {"starts": [0, 1, 2]})


def test_a_name_that_is_taken_a_class_that_is_no_sampler_and_a_signature_without_names_are_refused():
    class Fine(sk.Sampler):
        pass

    class Open(sk.Sampler):
        def __init__(self, **options: int) -> None:
            pass

    class Clash(sk.Sampler):
        def __init__(self, child: int) -> None:
            pass

    class Unknown(sk.Sampler):
        def __init__(self, other: "NotThere") -> None:  # noqa: F821
            pass

    for kind, sampler, error, fragment in [
        ("random", Fine, ValueError, "kind: is taken"),
        ("tests_strided", Strided, ValueError, "kind: is taken"),
        ("", Fine, ValueError, "kind: must be a word"),
        (3, Fine, TypeError, "kind: must be a string"),
        ("tests_bad", int, TypeError, "sampler: must be a subclass"),
        ("tests_bad", Fine(), TypeError, "sampler: must be a subclass"),
        ("tests_bad", len, TypeError, "sampler: must be a subclass"),
        ("tests_bad", Open, TypeError, "options: cannot be given by name"),
        ("tests_bad", Clash, ValueError, "child: has another meaning"),
        ("tests_bad", Unknown, TypeError, r"type hints: cannot be understood \(name 'NotThere'"),
    ]:
        with pytest.raises(error, match=fragment) as caught:
            sk.register_sampler(kind, sampler)
        assert isinstance(caught.value, sk.SamplerkitError)
    assert "tests_bad" not in list(SAMPLERS)


@pytest.mark.parametrize("kinds", [SAMPLERS, DATASETS, BATCHES], ids=lambda kinds: kinds.section)
def test_names_and_defaults_are_those_of_the_constructor_except_functions(kinds):
    for kind, constructor in kinds.items():
        # The kind of shards is a function that leaves arguments to its class.
        make = TarDataset if kind == "tar" else constructor.make
        for name, parameter in inspect.signature(make).parameters.items():
            if name not in ("progress", "decode") and (kind, name) != ("ledger", "sampler"):
                default = default_of(constructor.model, name)
                assert default == (... if parameter.default is parameter.empty else parameter.default)
