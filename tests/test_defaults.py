"""What an argument means where it is left out is written down: who upgrades gets what there was before."""

from __future__ import annotations

import json

from tests.write_defaults import FILE, defaults


def test_a_public_argument_stays_and_so_does_its_default():
    written, now = json.loads(FILE.read_text()), defaults()
    assert len(written) > 200
    assert {name: now.get(name) for name in written} == written
