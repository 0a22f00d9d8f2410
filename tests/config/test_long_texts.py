"""Long texts are read by libyaml, as strictly as short ones; and there is an end to it."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

import samplerkit as sk
from samplerkit.config import text as reading
from tests.config.test_bad_configs import TEXTS, refused

WITHOUT_LIBYAML = not yaml.__with_libyaml__
MANY = 3000


def listed(numbers):
    return f"sampler: {{kind: subset, indices: [{', '.join(map(str, numbers))}]}}\n"


@pytest.mark.skipif(WITHOUT_LIBYAML, reason="this PyYAML was built without libyaml")
def test_a_long_list_is_read_by_libyaml_and_means_the_same(monkeypatch):
    ids = np.random.default_rng(7).integers(2**40, size=MANY).tolist()
    text = listed(ids)
    monkeypatch.setattr(reading, "LONG", len(text))
    with monkeypatch.context() as patch:
        patch.setattr(yaml.scanner.Scanner, "fetch_more_tokens", None)  # PyYAML's own parser is not there
        assert sk.Config.from_yaml(text).sampler.indices.tolist() == ids
        with pytest.raises(TypeError):
            sk.Config.from_yaml(listed(ids[:3]))
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert reading.parse(text)["sampler"]["indices"] == ids


@pytest.mark.skipif(WITHOUT_LIBYAML, reason="this PyYAML was built without libyaml")
@pytest.mark.parametrize("text", [case[0] for case in TEXTS], ids=range(len(TEXTS)))
def test_what_is_refused_in_a_short_text_is_refused_in_a_long_one(text, monkeypatch):
    monkeypatch.setattr(reading, "LONG", 0)
    refused(sk.Config.from_yaml, text)


@pytest.mark.parametrize(
    "text", ["{a: 0, b: 007, c: 0x1f, d: 1_000, e: '5', f: 1:30, g: -3, h: +4, i: 08}", "[1, ~]"]
)
@pytest.mark.parametrize("long", [0, 1000])
def test_numbers_mean_what_they_mean_in_yaml(text, long, monkeypatch):
    monkeypatch.setattr(reading, "LONG", long)
    assert reading.parse(text) == yaml.safe_load(text)


def test_a_text_that_would_take_minutes_is_refused_and_the_mend_names_npy(monkeypatch):
    assert reading.MOST_CHARACTERS >= 1 << 20
    monkeypatch.setattr(reading, "MOST_CHARACTERS", 100)
    error = refused(sk.Config.from_yaml, listed(range(100)))
    assert "characters, and at most 100 are read; keep long lists in .npy files" in str(error)
