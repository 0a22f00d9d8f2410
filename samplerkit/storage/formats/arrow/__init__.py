"""Samples in files of Arrow's IPC."""
