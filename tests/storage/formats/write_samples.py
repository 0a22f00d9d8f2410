"""Writes the small files that tests read without the packages that wrote them, into tests/data/formats.

`python -m tests.storage.formats.write_samples`, with datasets 5.2.0 installed.
"""

from __future__ import annotations

from tests.storage.formats.test_arrow import FOLDER


def main() -> None:
    """Writes them."""
    import datasets  # noqa: PLC0415  # only who writes them needs it: pytest imports each file for its doctests

    rows = [{"id": id, "text": f"text {id}", "tokens": [id] * (id % 5)} for id in range(250)]
    datasets.Dataset.from_list(rows).save_to_disk(FOLDER, num_shards=2)


if __name__ == "__main__":
    main()
