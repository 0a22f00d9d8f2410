"""A training script whose loss is the mean of each rank's batch, whatever its size."""

import samplerkit as sk

LENGTHS = [1 + number * 7 % 30 for number in range(1000)]


def loader():
    recipe = sk.TokenBatches(240, lengths=LENGTHS)
    return sk.Loader(range(1000), sk.RandomSampler(seed=7), batches=recipe, world=sk.World(4, 1))


def train(model, optimizer):
    for batch in loader():
        model(batch).mean().backward()
        optimizer.step()
