"""A self-contained page that shows the order while the reader changes mode, ranks, files and blocks.

The page computes the ids itself with `order.js`, a second implementation of the algorithm in
`samplerkit.order`. They agree for good, since that algorithm must not change.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Final, final

from samplerkit.errors import NotSupportedError
from samplerkit.inspect.view import RunView

MAX_SAMPLES: Final = 2**31 - 1
"""The page computes with 32-bit integers."""

MAX_FILES: Final = 10_000
MAX_RANKS: Final = 1024

_PARTS = ("explorer.css", "order.js", "figures.js", "pictures.js", "explorer.js")


@final
@dataclass(frozen=True)
class Settings:
    """Initial settings of the page, mostly named like the samplers' arguments.

    Args:
        mode: the value of the shuffle mode.
        ranks: the number of ranks.
        sizes: samples in each file.
        batch: samples per rank and step.
        partial_size: samples in a block of PARTIAL.
        adaptive_threshold: the largest dataset that ADAPTIVE shuffles with GLOBAL.
        pools: the passes of PARTIAL, 1 or 2.
        lanes: the number of lanes; None for the number of ranks.
        seed: the seed as text, since JavaScript's numbers are exact only up to 2^53.
        epoch: the epoch.
    """

    mode: str = "partial"
    ranks: int = 4
    sizes: tuple[int, ...] = (120,) * 16
    batch: int = 4
    partial_size: int = 180
    adaptive_threshold: int = 1920
    pools: int = 1
    lanes: int | None = None
    seed: str = "7"
    epoch: int = 0

    @classmethod
    def of(cls, view: RunView, epoch: int = 0) -> Settings:
        """Returns the settings for a run.

        Args:
            view: the run.
            epoch: the epoch that is shown first.

        Raises:
            NotSupportedError: the run is not a single sampler with a shuffle mode that reads all samples, of
                which there are at least 4 and fewer than 2^31; or it has too many files or ranks.
        """
        sampler, layout = view.run.recipe, view.layout
        plain, deal = view.order_source.plain, sampler.chain.deal
        fits = 4 <= len(layout) <= MAX_SAMPLES and layout.sizes.size <= MAX_FILES
        is_plain = view.recipe is None and (deal is None or deal.offset < 0)
        if plain is None or not (is_plain and fits and view.num_ranks <= MAX_RANKS):
            problem = (
                "shows one sampler with a shuffle mode, which reads all of 4 to 2^31 - 1 samples, in at most "
                "10,000 files and on at most 1,024 ranks"
            )
            hint = "draw it: use -o order.html without --open"
            raise NotSupportedError("--open", problem, sampler, hint=hint)
        mode = plain.mode
        return cls(
            mode.shuffle.value,
            view.num_ranks,
            tuple(layout.sizes.tolist()),
            view.batch_size,
            min(mode.partial_size, MAX_SAMPLES),
            min(mode.adaptive_threshold, MAX_SAMPLES),
            mode.pools,
            mode.lanes,
            str(plain.seed),
            epoch,
        )


def page_of(settings: Settings | None = None) -> str:
    """Makes the page.

    Args:
        settings: the initial settings; None for a small example.

    Returns:
        Self-contained HTML.

    Example:
        >>> page = page_of(Settings(mode="files", ranks=2))
        >>> '"mode": "files", "ranks": 2' in page, "https://" in page
        (True, False)
    """
    folder = files(__package__)
    page = (folder / "explorer.html").read_text(encoding="utf-8")
    for name in _PARTS:
        page = page.replace(f"/* {name} */", (folder / name).read_text(encoding="utf-8").strip())
    return page.replace("/* settings */", json.dumps(asdict(settings or Settings())))
