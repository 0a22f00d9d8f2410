"""litData, as the benchmarks beside it write its folders and read them; it is imported when it is used."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any


def write_litdata(folder: Path | str, samples: Iterable[Any], chunk: int) -> None:
    """Writes samples, so many a chunk."""
    Path(folder).mkdir(exist_ok=True)
    writer = import_module("litdata.streaming.writer").BinaryWriter(str(folder), chunk)
    for number, sample in enumerate(samples):
        writer.add_item(number, sample)
    writer.done()
    writer.merge()


def written_tokens(folder: Path, documents: Iterable[Any], chunk_bytes: int) -> str:
    """Writes documents as litData stores tokens; gives the path."""
    loader = import_module("litdata.streaming.item_loader").TokensLoader()
    place = f"{folder}/litdata"
    cache = import_module("litdata.streaming.cache").Cache(place, chunk_bytes=chunk_bytes, item_loader=loader)
    for number, document in enumerate(documents):
        cache._add_item(number, document)
    cache.done()
    cache.merge()
    return place


def litdata_loader(
    place: str, batch: int, *, tokens: int = 0, options: dict[str, Any] | None = None, **of_loader: Any
) -> Any:
    """Its own loader of a folder, shuffled.

    Args:
        place: the path or URL of the folder.
        batch: samples of a batch.
        tokens: of a window; 0 for a folder of samples.
        options: of the dataset.
        of_loader: options of the loader.
    """
    litdata = import_module("litdata")
    item_loader = import_module("litdata.streaming.item_loader").TokensLoader(tokens) if tokens else None
    dataset = litdata.StreamingDataset(place, item_loader=item_loader, shuffle=True, **(options or {}))
    return litdata.StreamingDataLoader(dataset, batch_size=batch, **of_loader)
