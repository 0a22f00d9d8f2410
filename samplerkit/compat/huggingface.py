"""Uses a samplerkit `Loader` in Hugging Face's Trainer and its subclasses."""

import math
from importlib import import_module
from typing import Any

from samplerkit.loading.loader import Loader


def use_loader(trainer: Any, loader: Loader) -> None:
    """Makes a Trainer train on the batches of a loader, and save its state in the Trainer's own checkpoints.

    The Trainer then neither shards nor skips batches: `get_train_dataloader` returns the loader, which shards
    by rank and resumes by itself, and `ignore_data_skip` is set. The state is saved in `trainer_state.json`
    of each checkpoint and restored by `train(resume_from_checkpoint=...)`. Subclasses of
    `transformers.Trainer`, such as TRL's `SFTTrainer`, work as well.

    Args:
        trainer: the Trainer, before `train` is called.
        loader: the loader to train on.

    Example:
        This example is not run, because a Trainer needs a model; see docs/trainers/huggingface.md.

            trainer = Trainer(model, arguments, train_dataset=dataset)
            use_loader(trainer, sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=32))
    """
    names: Any = import_module("transformers.trainer_callback")
    read_before: dict[int, int] = {}  # epoch in which this training resumed: batches read before

    class KeepLoader(names.TrainerCallback, names.ExportableState):  # type: ignore[misc]  # imported late
        """Saves and loads the state of the loader; the class's name is the key in the checkpoint."""

        def state(self) -> dict[str, Any]:
            return {"args": {}, "attributes": {"loader": loader.state_dict()}}

        def on_train_begin(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
            read_before.clear()
            saved = state.stateful_callbacks.get("KeepLoader")
            if saved is not None:
                loader.load_state_dict(saved["attributes"]["loader"])
                read_before[loader.epoch] = loader.epoch_step

        def on_step_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
            epoch = math.ceil(state.epoch) - 1
            if read := read_before.get(epoch):
                steps = len(loader)
                state.epoch = epoch + (read + round((state.epoch - epoch) * (steps - read))) / steps

    run_epoch = trainer._run_epoch

    def run_rest_of_epoch(*, epoch: int, steps_in_epoch: int, **options: Any) -> None:
        # The Trainer updates the model after the last batch of an epoch, which it finds by counting batches.
        remaining = steps_in_epoch - read_before.get(epoch, 0)
        options["num_update_steps_per_epoch"] = -(-remaining // trainer.args.gradient_accumulation_steps)
        run_epoch(epoch=epoch, steps_in_epoch=remaining, **options)

    trainer.args.ignore_data_skip = True
    trainer.get_train_dataloader = lambda: loader
    trainer._run_epoch = run_rest_of_epoch
    trainer.add_callback(KeepLoader())
