"""The saved state, and its comparison with a run."""
