"""Lets Griffe, which reads the docstrings for the site, know our section `Example`."""

from __future__ import annotations

from typing import Any

import griffe


class OneExample(griffe.Extension):
    """Griffe knows the section `Examples` as code that was run; ours have one, and call it `Example`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the title in a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
