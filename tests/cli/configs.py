"""Configs of eight files for the commands, and checks of their output."""

import json

import yaml

SIZES = [50, 70, 3, 61, 49, 52, 73, 50]
NAMES = [f"shard-{number:04}.tar" for number in range(len(SIZES))]


def config(folder, name="train.yaml", dataset=None, loader=None, **sampler):
    layout = {"kind": "layout", "sizes": SIZES, "names": NAMES}
    sections = {
        "dataset": dataset or layout,
        "sampler": {"kind": "distributed", "seed": 7, **sampler},
        "loader": loader or {"batch_size": 8},
    }
    path = folder / name
    path.write_text(yaml.safe_dump(sections), encoding="utf-8")
    return str(path)


def in_json(command, *arguments):
    code, output, errors = command(*arguments, "--json")
    assert errors == ""
    return code, json.loads(output)


def is_plain_and_narrow(text):
    return "\x1b" not in text and all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())
