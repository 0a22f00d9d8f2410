"""A trainer under torchrun, stopped around ends of epochs, each time in a new trainer with a new loader.

Run as `torchrun --nproc-per-node 4 -m tests.trainers.trainer_border_job FOLDER TRAINER`. A stop ends the
training with a checkpoint of the trainer, and the next training resumes from it; the last one ends by itself.
Each rank writes, for each series of stops, the steps at which the trainings ended and the ids of each epoch.
"""
# ruff: noqa: PLC0415  # a job imports its own trainer alone

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# Imported before there is a process group: docs/trainers/train_accelerate.py says why.
import torch.distributed.nn.functional
from torch import nn

import samplerkit as sk

SIZE, EPOCHS = 24, 3
IN_STEP, AFTER_EPOCH = "in step", "after epoch"


class Numbers:
    """Sample i is its id and something to learn from."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "number": torch.tensor([float(index)])}


def make_loader() -> sk.Loader:
    """Three batches an epoch on each of four ranks."""
    return sk.Loader(Numbers(), sk.RandomSampler(seed=3), batch_size=2, num_workers=1, workers="threads")


class Fit:
    """One training, from the last checkpoint in a folder if there is one, to a stop or to the end.

    Args:
        folder: of the checkpoints.
        read: receives the ids of each epoch, by the trainer's own epoch.
        stop: None for the end.
    """

    epoch_steps = 3

    @classmethod
    def series(cls) -> list[list[tuple[str, int]]]:
        """All stops to try, one after another: at every step, and twice an epoch, once after its end."""
        steps = [(IN_STEP, step) for step in range(1, EPOCHS * cls.epoch_steps)]
        # The trainer has counted the epoch by then.
        ends = [(AFTER_EPOCH, epoch * cls.epoch_steps) for epoch in range(1, EPOCHS)]
        firsts = [(IN_STEP, epoch * cls.epoch_steps + 1) for epoch in range(EPOCHS)]
        twice_an_epoch = sorted([*firsts, *ends], key=lambda stop: stop[1])
        return [steps, twice_an_epoch]

    def __init__(self, folder: Path, read: list[list[int]], stop: tuple[str, int] | None) -> None:
        self.folder = folder
        self.read = read
        self.stop = stop

    def train(self) -> int:
        """Returns the number of all steps trained."""
        raise NotImplementedError


class LightningFit(Fit):
    """Stops by `should_stop` or `max_epochs`, with a checkpoint of ModelCheckpoint."""

    @classmethod
    def series(cls) -> list[list[tuple[str, int]]]:
        # Lightning's own count of epochs is wrong after two stops in steps: docs/trainers/lightning.md.
        steps, twice_an_epoch = super().series()
        return [*([stop] for stop in steps), twice_an_epoch]

    def train(self) -> int:
        import lightning
        from lightning.pytorch.callbacks import ModelCheckpoint

        read, stop = self.read, self.stop

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.network = nn.Linear(1, 1)

            def training_step(self, batch: Any, _: int) -> torch.Tensor:
                read[self.trainer.current_epoch] += batch["id"].tolist()
                return self.network(batch["number"]).mean()

            def on_train_batch_end(self, *_: Any) -> None:
                self.trainer.should_stop = stop == (IN_STEP, self.trainer.global_step)

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.SGD(self.parameters(), lr=0.01)

        when, step = stop or (None, 0)
        options = {
            IN_STEP: {"every_n_train_steps": step},
            AFTER_EPOCH: {"every_n_epochs": step // self.epoch_steps, "save_on_train_epoch_end": True},
        }
        saved = max(self.folder.glob("*.ckpt"), default=None)
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=int(os.environ["WORLD_SIZE"]),
            strategy="ddp",
            max_epochs=step // self.epoch_steps if when == AFTER_EPOCH else EPOCHS,
            callbacks=[ModelCheckpoint(self.folder, "{step}", **options[when])] if when else [],
            enable_checkpointing=when is not None,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        with make_loader() as loader:
            trainer.fit(Module(), loader, ckpt_path=saved)
        return trainer.global_step


class AccelerateFit(Fit):
    """A loop that keeps its epoch in the checkpoint of Accelerate, and sets it."""

    def train(self) -> int:
        from accelerate import Accelerator

        accelerator, loop, saved = Accelerator(cpu=True), Loop(), self.folder / "saved"
        network = nn.Linear(1, 1)
        model, optimizer = accelerator.prepare(network, torch.optim.SGD(network.parameters(), lr=0.01))
        with make_loader() as loader:
            accelerator.register_for_checkpointing(loader, loop)
            if saved.exists():
                accelerator.load_state(str(saved))
            for epoch in range(loop.epoch, EPOCHS):
                loop.epoch = epoch
                loader.set_epoch(epoch)
                for batch in loader:
                    self.read[epoch] += batch["id"].tolist()
                    optimizer.zero_grad()
                    accelerator.backward(model(batch["number"]).mean())
                    optimizer.step()
                    loop.step += 1
                    if self.stop == (IN_STEP, loop.step):
                        accelerator.save_state(str(saved))
                        return loop.step
                if self.stop == (AFTER_EPOCH, loop.step):
                    loop.epoch += 1
                    accelerator.save_state(str(saved))
                    break
        return loop.step


class Loop:
    """The counts of a loop."""

    def __init__(self) -> None:
        self.epoch, self.step = 0, 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.step = state["epoch"], state["step"]


class TransformersFit(Fit):
    """Stops by a callback of Hugging Face's Trainer, with the Trainer's own checkpoint."""

    accumulated = 1

    def train(self) -> int:
        from transformers import Trainer, TrainerCallback, TrainingArguments
        from transformers.trainer_utils import get_last_checkpoint

        from samplerkit.compat.huggingface import use_loader

        fit = self

        class Reader(Trainer):
            def compute_loss(self, model: nn.Module, inputs: Any, *_: Any, **__: Any) -> torch.Tensor:
                fit.read[int(self.state.epoch or 0)] += inputs["id"].tolist()
                return model(inputs["number"]).mean()

        class Stop(TrainerCallback):
            def on_step_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
                if fit.stop == (IN_STEP, state.global_step):
                    control.should_save = control.should_training_stop = True

            def on_epoch_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
                if fit.stop == (AFTER_EPOCH, state.global_step):
                    control.should_save = control.should_training_stop = True

        arguments = TrainingArguments(
            output_dir=str(self.folder),
            num_train_epochs=EPOCHS,
            gradient_accumulation_steps=self.accumulated,
            save_strategy="no",
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Reader(nn.Linear(1, 1), arguments, train_dataset=Numbers(), callbacks=[Stop()])
        with make_loader() as loader:
            use_loader(trainer, loader)
            trainer.train(resume_from_checkpoint=get_last_checkpoint(str(self.folder)))
        return trainer.state.global_step


class AccumulatingFit(TransformersFit):
    """An epoch of two steps, of two batches and of one."""

    epoch_steps, accumulated = 2, 2


TRAINERS = {
    "lightning": [LightningFit],
    "accelerate": [AccelerateFit],
    "transformers": [TransformersFit, AccumulatingFit],
}


def main(folder: Path, name: str) -> None:
    results = []
    for fit in TRAINERS[name]:
        for stops in fit.series():
            saved, read, steps = folder / f"checkpoints-{len(results)}", [[] for _ in range(EPOCHS)], []
            saved.mkdir(exist_ok=True)
            for stop in [*stops, None]:
                steps.append(fit(saved, read, stop).train())
                dist.barrier()  # rank 0 has written the checkpoint
            end = EPOCHS * fit.epoch_steps
            results.append({"expected": [*(step for _, step in stops), end], "steps": steps, "read": read})
    (folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # what the trainers hold may outlive the group


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2])
