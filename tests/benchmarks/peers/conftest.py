"""What pytest must not import here."""

# Each imports its peer, which may be in an environment of its own only.
collect_ignore = ["grain.py", "mindspore.py", "streaming.py"]
