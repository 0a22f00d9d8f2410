"""The algorithms that this version knows, by their ids."""

from __future__ import annotations

from samplerkit.order.keys import ALGORITHM
from samplerkit.samplers.algorithms.algorithm import Algorithm
from samplerkit.samplers.algorithms.mindspore import MindSpore
from samplerkit.samplers.algorithms.samplerkit_1 import Samplerkit1

MINDSPORE = "mindspore-2.10"
"""The id of what MindSpore 2.10 does, without its bugs."""

MINDSPORE_QUIRKS = "mindspore-2.10-quirks"
"""The id of what MindSpore 2.10 does, with its bugs."""

ALGORITHMS: dict[str, Algorithm] = {
    ALGORITHM: Samplerkit1(),
    MINDSPORE: MindSpore(quirks=False),
    MINDSPORE_QUIRKS: MindSpore(quirks=True),
}
