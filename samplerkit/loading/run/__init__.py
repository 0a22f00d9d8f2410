"""A run: what it counts, in which order, and what each rank reads of it."""
