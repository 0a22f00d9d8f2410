"""The running job: its ranks, and their agreement on what they read."""
