"""Trains with torchft: replicas may join and leave, and each step reads the same samples as without that.

torchft_lighthouse --min_replicas 2 --join_timeout_ms 1000
TORCHFT_LIGHTHOUSE=http://localhost:29510 python docs/trainers/train_torchft.py FOLDER 0
TORCHFT_LIGHTHOUSE=http://localhost:29510 python docs/trainers/train_torchft.py FOLDER 1
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from digits import Digits, Ledger, accuracy, make_network
from torch import nn
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo

import samplerkit as sk

GLOBAL_BATCH, EPOCHS = 48, 2


class Replica:
    """A replica, which may leave and join again.

    Args:
        folder: receives the ledger.
        number: the number of this replica; when it joins again, it has the same number.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self.digits, self.network = Digits(), make_network()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.01)
        self.loader = sk.Loader(self.digits, sk.RandomSampler(seed=7), batch_size=1, world=sk.World(1, 0))
        self.data = self.loader.state_dict()
        self.ledger, self.number = Ledger(folder, number), number

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that is sent to a replica that joins: the current step, without any file."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "data": self.data,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores that state."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.data = state["data"]

    def dealt(self, world: sk.World) -> Iterator[Any]:
        """Deals the rest of the epoch to the current replicas, in global batches of constant size."""
        self.loader.close()
        batch_size = GLOBAL_BATCH // world.num_shards
        self.loader = sk.Loader(self.digits, sk.RandomSampler(seed=7), batch_size=batch_size, world=world)
        self.loader.load_state_dict(self.data)
        return iter(self.loader)

    def train(self, manager: Manager) -> None:
        """Trains to the end."""
        batches: Iterator[Any] = iter(())
        committed = False
        while True:
            manager.start_quorum()  # forms the quorum; a replica that is behind receives the state here
            world = sk.World(manager.num_participants(), manager.participating_rank())
            if not committed or world != self.loader.world or not self.loader.remaining:
                batches = self.dealt(world)  # from the state before the step, its own or a received one
            if self.loader.epoch == EPOCHS:
                break
            epoch, step = self.loader.epoch, manager.current_step()
            images, labels, ids = next(batches)
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.network(images), labels).backward()
            self.ledger.strike(step)  # DIGITS_KILL ends it here, while the others wait for it
            for parameter in self.network.parameters():
                manager.allreduce(parameter.grad).wait()
            committed = manager.should_commit()
            if committed:  # by all; otherwise the remaining replicas repeat the step
                self.optimizer.step()
                self.data = self.loader.state_dict()
                self.ledger.write(epoch, step, ids)


def main() -> None:
    """Joins, and trains to the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for the ledgers")
    parser.add_argument("number", type=int, help="the number of this replica")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    replica = Replica(options.folder, options.number)
    # A replica of several processes needs a common store and a rank for each; torchrun provides both.
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        ProcessGroupGloo(),
        replica.load_state_dict,
        replica.state_dict,
        min_replica_size=2,
        use_async_quorum=False,  # the replicas are known before the batch is read
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        replica_id=f"replica_{options.number}",
    )
    try:
        replica.train(manager)
        print(f"{manager.current_step()} steps, test accuracy {accuracy(replica.network):.3f}", flush=True)
    finally:
        manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
