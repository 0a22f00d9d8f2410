"""The distributions, built and tested as users install them."""
