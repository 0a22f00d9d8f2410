"""The keys that folders have in their names, as Hive and Spark write them: `year=2024/0.parquet`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samplerkit.errors import DatasetError
from samplerkit.storage.files.packages import extra
from samplerkit.storage.urls import shown

Keys = tuple[tuple[str, Any], ...]
"""Names and values, as scalars of Arrow's."""


def folder_keys(paths: Sequence[str]) -> list[Keys]:
    """Reads the keys of each file by pyarrow; those of one name have one type: int32, or else string.

    Args:
        paths: of the files, or their URLs.

    Raises:
        DatasetError: pyarrow is not installed, a file has no keys, or others than the first one.

    Example:
        >>> keys = folder_keys(["/data/year=2024/lang=en/0.parquet", "/data/year=7/lang=a%20b/0.parquet"])
        >>> [[(name, value.as_py()) for name, value in each] for each in keys]
        [[('year', 2024), ('lang', 'en')], [('year', 7), ('lang', 'a b')]]
    """
    arrow, dataset = extra("pyarrow", "parquet"), extra("pyarrow.dataset", "parquet")
    places = [shown(path) for path in paths]
    folders = places[0].split("/")[:-1]
    names = list(dict.fromkeys(folder.partition("=")[0] for folder in folders if "=" in folder))
    schema = arrow.schema([(name, arrow.string()) for name in names])
    partitioning = dataset.HivePartitioning(schema)
    found = []
    for place in places:
        keys = dataset.get_partition_keys(partitioning.parse(place))
        if not names or keys.keys() != set(names) or place.count("=") != places[0].count("="):
            others = "has other keys in the names of its folders than the first file"
            problem = others if names else "has no keys in the names of its folders"
            hint = "name files whose folders are called key=value alike, or leave partitioning out"
            raise DatasetError(place, problem, names, hint=hint)
        found.append(keys)
    columns = {name: _typed(arrow, [keys[name] for keys in found]) for name in names}
    return [tuple((name, columns[name][at]) for name in names) for at in range(len(found))]


def _typed(arrow: Any, texts: list[str | None]) -> Any:
    column = arrow.array(texts, arrow.string())
    try:
        return column.cast(arrow.int32())
    except arrow.ArrowInvalid:
        return column
