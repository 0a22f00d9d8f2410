"""Random runs with batches: any recipe, sampler, tail and lengths; cut, resized and sent to other epochs."""
