"""Bugs in files and formats that lose samples or end the process."""

from __future__ import annotations

from tests.campaigns.planting import Bug

BUGS = [
    Bug(
        "a glob leaves out links whose target is missing",
        "matching_files",
        "not _is_folder(path, broken)",
        "os.path.isfile(path)",
        "tests/storage/test_globs.py::test_a_match_that_cannot_be_read_is_the_error_that_its_name_is",
    ),
    Bug(
        "a damaged footer is asked for its columns",
        "ParquetFile._wanted_rows",
        "self._require_columns(group, condition.names, metadata)",
        "pass",
        "tests/storage/formats/test_parquet_testing.py::test_no_damage_to_a_footer_ends_the_process",
    ),
    Bug(
        "the sum of rows in a footer is believed",
        "ParquetReader.count",
        "sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))",
        "metadata.num_rows",
        "tests/storage/formats/test_parquet_testing.py::test_row_groups_count_where_the_footer_has_another_sum_of_rows",
    ),
]
