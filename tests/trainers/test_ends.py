"""How the examples end: no thread of gloo lives when Python does, or it may abort the process."""

from __future__ import annotations

import re

import pytest

from tests.trainers.jobs import EXAMPLES, run, torchrun

NEEDS = ("transformers", "accelerate", "scikit-learn")


@pytest.mark.parametrize("example", ["train_ddp.py", "train_accelerate.py", "train_text_transformers.py"])
def test_an_example_leaves_no_thread_of_gloo_to_the_end_of_python(tmp_path, example):
    script = ["-m", "tests.trainers.left_job", tmp_path, EXAMPLES / example, tmp_path, "--epochs=1"]
    code, printed = run(tmp_path, *torchrun(2, *script))
    assert code == 0, printed
    assert [(tmp_path / f"left-{rank}").read_text() for rank in range(2)] == ["", ""]


MAKES_A_GROUP = re.compile(r"torchrun|init_process_group|Accelerator\(|lightning\.Trainer\(")


def test_every_example_that_makes_a_process_group_ends_it_after_the_model():
    examples = {
        path.name: text
        for path in EXAMPLES.glob("train_*.py")
        if MAKES_A_GROUP.search(text := path.read_text())
    }
    # The group of the one is of one process with no model in it, those of the other end with its Manager.
    others = {"train_megatron.py", "train_torchft.py"}
    assert len(examples) >= 9
    ended = {name for name, text in examples.items() if text.endswith("    end_process_group()\n")}
    assert set(examples) - ended == others
