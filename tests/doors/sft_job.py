"""Packs of documents in TRL's SFTTrainer: a tiny model, a checkpoint each fifth step, a death in step 13."""

import json
import os
import sys
from pathlib import Path

import datasets
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

import samplerkit as sk
from samplerkit.compat.huggingface import use_loader
from tests.doors.lengths import LENGTHS


class Documents:
    """Document i is i, as often as it is long."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return {"input_ids": [index] * LENGTHS[index]}


class Noted(TrainerCallback):
    """Dies once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_step_end(self, arguments, state, control, **_):
        dead = self.folder / "dead"
        if state.global_step == 13 and not dead.exists():
            dead.touch()
            os._exit(9)


def packed(batch):
    """What the model takes of a batch: no document's first token is a label, and no padding is."""
    labels = torch.where(batch["position_ids"] == 0, -100, batch["input_ids"])
    return {"input_ids": batch["input_ids"], "position_ids": batch["position_ids"], "labels": labels}


class Noting(SFTTrainer):
    """Writes down which documents each step trained on."""

    def compute_loss(self, model, inputs, *arguments, **named):
        with (self.folder / "steps.jsonl").open("a") as file:
            tokens = inputs["input_ids"][inputs["segment_ids"] > 0]
            line = {"step": self.state.global_step, "tokens": tokens.tolist()}
            file.write(json.dumps(line) + "\n")
        return super().compute_loss(model, packed(inputs), *arguments, **named)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    pad, end = "<pad>", "<eos>"
    vocabulary = {str(number): number for number in range(300)} | {pad: 300, end: 301}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=pad))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token=pad, eos_token=end)
    config = LlamaConfig(
        vocab_size=302,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    recipe = sk.PackBatches(64, packs=2, lengths=LENGTHS)
    loader = sk.Loader(Documents(), sk.RandomSampler(seed=7), batches=recipe)
    rows = datasets.Dataset.from_dict({"input_ids": [[number] for number in range(4)]})
    arguments = SFTConfig(
        output_dir=str(folder / "checkpoints"),
        num_train_epochs=2,
        save_steps=5,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        bf16=False,
    )
    trainer = Noting(LlamaForCausalLM(config), arguments, train_dataset=rows, processing_class=tokenizer)
    trainer.folder = folder
    use_loader(trainer, loader)
    trainer.add_callback(Noted(folder))
    trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))
    print(trainer.state.global_step, "steps of", len(loader) * 2)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    main(folder)
