"""Workers: who reads the samples of a batch, and how it reaches the loop."""
