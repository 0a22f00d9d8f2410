"""A dataset of which a config says in what files it lies."""

from __future__ import annotations

from typing import Any, final

from samplerkit.errors import ConfigError, DatasetError
from samplerkit.order.layout import Layout


def placed(dataset: Any, said: Any) -> Any:
    """Joins a dataset to what a config says of it.

    Args:
        dataset: what is to be read; None for the dataset in the config.
        said: the layout or the dataset in the config, or None.

    Returns:
        What a sampler draws from: the dataset, with the layout of the config where that tells the files.

    Raises:
        ConfigError: the two contradict one another, or there is nothing that could be read.

    Example:
        >>> placed("abc", Layout([1, 2])).layout
        Layout([1, 2])
    """
    if dataset is None:
        if said is None or isinstance(said, Layout):
            problem = "is missing" if said is None else "says only a layout"
            raise ConfigError("dataset", problem, mend="pass the dataset, or name one of kind files or tar")
        return said
    if said is None:
        return dataset
    said = Layout.of(said)
    try:
        found = Layout.of(dataset)
    except DatasetError:
        return WithLayout(dataset, said)
    if found.num_samples != said.num_samples:
        raise ConfigError(
            "dataset", f"says {said.num_samples} samples, and the dataset has others", found.num_samples
        )
    if not said.has_files:
        return dataset
    if found.has_files and found.sizes.tolist() != said.sizes.tolist():
        raise ConfigError("dataset", f"says {said!r}, and the dataset has other files", found)
    return WithLayout(dataset, said)


@final
class WithLayout:
    """A dataset that tells its layout, and all else as before.

    Args:
        dataset: gives everything but the layout.
        layout: how many samples lie in which files.
    """

    def __init__(self, dataset: Any, layout: Layout) -> None:
        self._dataset = dataset
        self.layout = layout

    def __len__(self) -> int:
        return self.layout.num_samples

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for attributes before there is a dataset to ask.
        if name == "_dataset":
            raise AttributeError(name)
        return getattr(self._dataset, name)
