"""The page of the reference on samplers, from the registry."""

from __future__ import annotations

from samplerkit.config.registry import SAMPLERS

NAME = "samplers.md"

_HEAD = """# Samplers

Recipes. [Samplers](../samplers.md) shows what each reads.
"""

_BESIDE = ("Edit", "Shuffle", "Context", "RunConstants")


def page() -> str:
    """Writes the page."""
    classes = [SAMPLERS[kind].make for kind in SAMPLERS]
    # Other tests register samplers of theirs.
    ours = [made.__name__ for made in classes if made.__module__.startswith("samplerkit.samplers.")]
    return _HEAD + "".join(f"\n::: samplerkit.{name}\n" for name in ("Sampler", *ours, *_BESIDE))
