"""A dataset over Parquet files."""
