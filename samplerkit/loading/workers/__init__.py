"""Workers, which read the samples of a batch and send it to the loop."""
