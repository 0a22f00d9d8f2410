"""Wrong arguments: each is an error of the class that MindSpore documents, and names the argument."""

import inspect
import json

import numpy as np
import pytest

import samplerkit as sk
from tests.values_in_messages import WRONG, bridge, evaluated, values_of

CALLS = json.loads(WRONG.read_text(encoding="utf-8"))


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_an_error_of_the_documented_class_that_names_it(call):
    """Where this fails: `python -m tests.values_in_messages`, and see what changed."""
    with pytest.raises(sk.SamplerkitError) as caught:
        evaluated(call)
    assert [type(caught.value).__name__, *values_of(caught.value)] == CALLS[call]
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


LIMITS = json.loads(WRONG.with_name("limits.json").read_text(encoding="utf-8"))
"""The least and the largest number that an argument `n` of a call may be; null for no limit."""


@pytest.mark.parametrize("call", LIMITS)
def test_the_least_and_the_largest_number_are_accepted_and_none_beyond(call):
    least, most = LIMITS[call]
    assert evaluated(f"(lambda n: {call})({least})") is not None
    with pytest.raises(sk.SamplerkitError):
        evaluated(f"(lambda n: {call})({least - 1})")
    if most is not None:
        assert evaluated(f"(lambda n: {call})({most})") is not None
        with pytest.raises(sk.SamplerkitError):
            evaluated(f"(lambda n: {call})({most + 1})")


REQUIRED = {
    "DeviceLoader": ([range(3)], {}),
    "FileDataset": (["a.npz"], {"reader": "npz"}),
    "Loader": ([range(3)], {"batch_size": 1}),
    "FoldSampler": ([2, 0], {}),
    "PKSampler": ([2], {}),
    "TarDataset": (["a.tar"], {}),
    "TarWriter": (["out-%d.tar"], {}),
    "TokenDataset": (["a.npy", 8], {}),
    "TokenWriter": (["out"], {"dtype": "uint16"}),
    "TorchBatchSampler": ([bridge()], {"batch_size": 2}),
    "WeightedRandomSampler": ([[1, 2]], {}),
    "load_config": ([{"sampler": {"kind": "random"}}], {}),
}
"""The required arguments, by public name."""


def switches():
    """All public arguments that are a bool."""
    for name in sk.__all__:
        public = getattr(sk, name)
        if (inspect.isclass(public) and not issubclass(public, sk.Config)) or inspect.isfunction(public):
            for argument, parameter in inspect.signature(public).parameters.items():
                if parameter.annotation in {"bool", bool}:
                    yield name, argument


@pytest.mark.parametrize("value", [1, "no", None, []])
@pytest.mark.parametrize(("name", "argument"), [*switches()])
def test_a_switch_takes_only_a_bool(name, argument, value):
    given, named = REQUIRED.get(name, ([], {}))
    with pytest.raises(sk.ArgumentTypeError, match=f"^{argument}: must be a bool, got "):
        getattr(sk, name)(*given, **named, **{argument: value})


def test_the_message_of_a_long_array_is_one_short_line():
    with pytest.raises(TypeError) as caught:
        sk.SubsetSampler(np.linspace(0, 1, 10_000).reshape(100, 100))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_integer_that_python_refuses_to_write_is_an_error_with_its_type():
    with pytest.raises(sk.ArgumentValueError, match=r"seed: must be in .*, got <int>"):
        sk.RandomSampler(seed=1 << 20_000)
