"""What pytest must not import here."""

# It runs where MindSpore is, and imports that at once.
collect_ignore = ["run_mindspore.py"]
