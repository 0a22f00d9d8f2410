"""Catalogues: sizes, versions and lengths of millions of files in one file that a job reads at its start."""
