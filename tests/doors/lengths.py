"""How long the documents are that the jobs of this folder pack."""

LENGTHS = [3 + 7 * number % 23 for number in range(300)]
