"""The program of each rank of the demo: it trains, and writes what its training loop received."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed

# Before the process group exists: DDP imports this module, and ten default arguments in it take hold of the
# group if there is one. Then destroying it does not end gloo's threads, and one that lets go of a tensor
# while Python ends aborts the process (one run in ten or so).
import torch.distributed.nn.functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from samplerkit.cli.demo import ledger
from samplerkit.cli.demo.data import (
    EPOCHS,
    GLOBAL_BATCH,
    MODES,
    RESUMED_EPOCHS,
    SAVED_EVERY,
    config_path,
    training_files,
)
from samplerkit.cli.demo.launch import tell
from samplerkit.config.config import load_config
from samplerkit.errors import ConfigError
from samplerkit.loading.loader import Loader
from samplerkit.order.shuffle import Shuffle
from samplerkit.samplers.distributed import DistributedSampler
from samplerkit.storage.atomic import atomic
from samplerkit.storage.files.dataset import FileDataset

LEARNING_RATE = 0.005


@dataclass(frozen=True)
class Job:
    """What a rank needs to know: where `data` and `configs` are, and where its network lives."""

    folder: Path
    rank: int
    device: torch.device


class Trainee:
    """The small network that reads digits of 8 by 8 pixels, with its optimizer."""

    def __init__(self, job: Job, seed: int) -> None:
        torch.manual_seed(seed)
        self._job = job
        layers = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)]
        self._network = nn.Sequential(*layers).to(job.device)
        self._model = DistributedDataParallel(self._network)
        self.optimizer = torch.optim.Adam(self._model.parameters(), lr=LEARNING_RATE)

    def learn(self, batch: dict[str, torch.Tensor]) -> None:
        """Does one step; pixels are the numbers 0 to 16."""
        self.optimizer.zero_grad()
        answers = self._model(batch["pixels"].float() / 16)
        nn.functional.cross_entropy(answers, batch["labels"]).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Gives the share of right answers on the test set, in percent."""
        with np.load(self._job.folder / "data" / "test.npz", allow_pickle=False) as file:
            pixels, labels = (torch.from_numpy(file[name]) for name in ("pixels", "labels"))
        answers = self._network((pixels.float() / 16).to(self._job.device)).argmax(dim=1).cpu()
        return 100 * float((answers == labels).float().mean())

    def save(self, loader: Loader, **told: Any) -> None:
        """Replaces the checkpoint at once, so that a crash leaves the old one or the new one."""
        if self._job.rank == 0:
            parts: dict[str, Any] = {"network": self._network, "optimizer": self.optimizer, "loader": loader}
            with atomic(self._job.folder / "checkpoint.pt") as file:
                torch.save({**{name: part.state_dict() for name, part in parts.items()}, **told}, file)
        torch.distributed.barrier()

    def load(self, loader: Loader) -> None:
        """Goes on from the checkpoint, if there is one."""
        checkpoint = self._job.folder / "checkpoint.pt"
        if checkpoint.exists():
            state = torch.load(checkpoint, weights_only=True, map_location=self._job.device)
            self._network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            loader.load_state_dict(state["loader"])


def train(job: Job, ledgers: Path, mode: Shuffle, seed: int) -> None:
    """Trains in the order of a shuffle mode; the seed is that of the order and of the network."""
    path = config_path(job.folder / "configs", mode)
    written = load_config(path).to_dict()
    written["sampler"]["seed"] = seed
    config = load_config(written)
    dataset, loader = config.dataset, config.make_loader(device=job.device)
    if not isinstance(dataset, FileDataset):
        raise ConfigError("dataset", "must be of kind files", dataset, mend=f"see {path.name}")
    trainee = Trainee(job, seed)
    steps = EPOCHS * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(trainee.optimizer, lambda step: 1 - step / steps)
    with ledger.opened(ledgers, f"{mode.value}-{seed}", job.rank) as file:
        for _ in range(EPOCHS):
            ids: list[int] = []
            before = dataset.stats.files_read
            for batch in loader:  # on the device already, while the step before trained
                ids += batch["ids"].tolist()
                trainee.learn(batch)
                schedule.step()
            ledger.write(file, ids=ids, files_opened=dataset.stats.files_read - before)
            if job.rank == 0:
                tell(event="epoch", mode=mode.value)
    torch.distributed.barrier()  # all have written
    if job.rank == 0:
        tell(event="training", mode=mode.value, accuracy=trainee.accuracy(), device=str(job.device))


def train_and_save(job: Job, run: str, killed_in: int) -> None:
    """Trains from the last checkpoint on; in step `killed_in`, or never if 0, the last rank kills itself."""
    ranks, step = torch.distributed.get_world_size(), 0
    dataset = FileDataset(training_files(job.folder / "data"), "npz")
    sampler = DistributedSampler(shuffle="partial", partial_size=180, seed=7)
    trainee = Trainee(job, seed=7)
    with (
        Loader(dataset, sampler, batch_size=GLOBAL_BATCH // ranks, device=job.device) as loader,
        ledger.opened(job.folder, run, job.rank) as file,
    ):
        trainee.load(loader)
        while loader.epoch < RESUMED_EPOCHS:
            for batch in loader:
                kept = batch["ids"].cpu()[~torch.from_numpy(loader.pads(loader.step - 1))].tolist()
                ledger.write(file, epoch=loader.epoch, ids=kept)
                trainee.learn(batch)
                step += 1
                if step % SAVED_EVERY == 0:
                    trainee.save(loader, run=run, step=step)
                if step == killed_in and job.rank == ranks - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
    if job.rank == 0:
        tell(event="trained", accuracy=trainee.accuracy())


def main(reports: str, folder: str, *work: str) -> None:
    """Does the work of one rank; its traceback goes to the folder `reports` if it fails."""
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    torch.set_num_threads(1)  # the ranks share the machine
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    try:
        backend, device = _place(local_rank)
        torch.distributed.init_process_group(backend)
        job = Job(Path(folder), rank, device)
        if work[0] == "modes":
            for mode in MODES:
                for seed in range(int(work[2])):
                    train(job, Path(work[1]), mode, seed)
        else:
            train_and_save(job, work[0], int(work[1]))
        torch.distributed.destroy_process_group()
    except Exception:
        (Path(reports) / f"rank-{rank}.txt").write_text(traceback.format_exc(), encoding="utf-8")
        raise


def _place(local_rank: int) -> tuple[str, torch.device]:
    """A GPU for each rank, or one for all (which nccl refuses), or none."""
    gpus = torch.cuda.device_count()
    if gpus > local_rank and gpus >= int(os.environ["LOCAL_WORLD_SIZE"]):
        torch.cuda.set_device(local_rank)
        return "nccl", torch.device("cuda", local_rank)
    return "gloo", torch.device("cuda", 0) if gpus else torch.device("cpu")


def _end_with_the_command() -> None:
    """Ends this process when the command is gone, however it went: then its end of our stdin is closed.

    torchrun gives each rank a session of its own, so that no signal to a process group reaches it.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
