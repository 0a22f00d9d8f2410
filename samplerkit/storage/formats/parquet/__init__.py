"""Samples in Parquet files."""
