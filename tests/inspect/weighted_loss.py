"""The same with a loss that all ranks divide by the tokens of the step."""

from tests.inspect.unweighted_loss import loader as made


def loader():
    return made()


def train(model, optimizer):
    batches = loader()
    for step, batch in enumerate(batches):
        (model(batch).sum() / batches.tokens(step)).backward()
        optimizer.step()
