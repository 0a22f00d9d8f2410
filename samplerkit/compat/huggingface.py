"""Hugging Face's Trainer, and each that is made of it, with a loader of ours."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from samplerkit.loading.loader import Loader


def use_loader(trainer: Any, loader: Loader) -> None:
    """Makes a Trainer train on the batches of a loader, and keep its state in the Trainer's own checkpoints.

    The Trainer neither deals nor skips then: `get_train_dataloader` gives the loader, which deals to the
    ranks and goes on by itself, and `ignore_data_skip` is set. The state lies in `trainer_state.json` of each
    checkpoint, and `train(resume_from_checkpoint=...)` hands it back. Any trainer that is one of
    `transformers.Trainer` will do, such as TRL's `SFTTrainer`.

    Args:
        trainer: before `train`.
        loader: what the training reads.

    Example:
        A Trainer needs a model, so this is not run: see docs/trainers/huggingface.md.

            trainer = Trainer(model, arguments, train_dataset=dataset)
            use_loader(trainer, sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=32))
    """
    names: Any = import_module("transformers.trainer_callback")

    class KeepLoader(names.TrainerCallback, names.ExportableState):  # type: ignore[misc]  # known when asked for
        """Its name is that of the state in the checkpoint."""

        def state(self) -> dict[str, Any]:
            return {"args": {}, "attributes": {"loader": loader.state_dict()}}

        def on_train_begin(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
            saved = state.stateful_callbacks.get("KeepLoader")
            if saved is not None:
                loader.load_state_dict(saved["attributes"]["loader"])

    trainer.args.ignore_data_skip = True
    trainer.get_train_dataloader = lambda: loader
    trainer.add_callback(KeepLoader())
