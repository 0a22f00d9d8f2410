"""What pytest must not import here."""

# They run where MindSpore and Megatron are, and import these at once.
collect_ignore = ["run_mindspore.py", "run_megatron.py"]
