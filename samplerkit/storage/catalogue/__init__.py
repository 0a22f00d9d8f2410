"""Catalogues: what is known of millions of files, in one file that a job reads at its start."""
