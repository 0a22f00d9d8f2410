"""Trains a small GPT on two corpora that come with Python; changes the mixture and the windows in mid-run.

torchrun --standalone --nproc-per-node 2 docs/examples/train_gpt.py FOLDER --steps 160
python docs/examples/train_gpt.py FOLDER --steps 320 --edit 240:0.2
python docs/examples/train_gpt.py FOLDER --steps 400 --edit 240:0.2 --seq-len 256

The first command makes the corpora. You can kill it at any time: each command resumes from the last
checkpoint, on any number of ranks. At step 240 the share of code becomes 0.2, and from step 320 windows are
twice as long. No token of a pass over a corpus is lost or repeated. `--plot loss.png` plots the loss
(matplotlib).
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
import ast
import json
import os
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import samplerkit as sk

TOKENS_A_STEP = 2048
"""Tokens per step of all ranks together, for any length of windows."""

BLOCK_LEN = 1024
"""A multiple of all lengths of windows that are used later."""

POOL = 8
"""Blocks: every 8,192 tokens, which are four steps, a run may continue with another length of windows."""

SAVE_EVERY = 20
END = 256
"""The token after each document; all other tokens are bytes."""

MAX_BYTES = 2_000_000
"""The size of a corpus."""


def write_corpora(folder: Path) -> None:
    """Writes two corpora: the sources of the standard library, and its docstrings and manual."""
    code: list[str] = []
    prose = list(topics.values())
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*/*.py")):
        if {"test", "site-packages", "lib2to3"} & {*path.parts}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        code.append(text)
        named = (ast.Module, ast.ClassDef, ast.FunctionDef)
        nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, named))
        prose += [text for node in nodes if (text := ast.get_docstring(node)) and len(text) > 80]
    for name, documents in (("code", code), ("prose", prose)):
        written = 0
        with sk.TokenWriter(folder / name, "uint16") as writer:
            for document in documents:
                data = document.encode()[: MAX_BYTES - written]
                writer.write([*data, END])
                written += len(data)
                if written >= MAX_BYTES:
                    break


class GPT(nn.Module):
    """A small transformer that predicts the next byte, with equal parameters in every process."""

    def __init__(self, width: int = 96, layers: int = 3, longest: int = BLOCK_LEN) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(END + 1, width)
        self.places = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, END + 1)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        """Returns logits of shape (batch, S, tokens)."""
        # The document of each token of the flattened batch: tokens attend to their own document only.
        flat = torch.arange(tokens.numel())
        documents = torch.searchsorted(cu_seqlens.long(), flat, right=True).view(tokens.shape)
        seen = (documents[:, :, None] == documents[:, None, :]).tril()[:, None]
        hidden = self.tokens(tokens) + self.places(places)
        for layer in self.layers:
            hidden = layer(hidden, seen)
        return self.out(self.norm(hidden))


class Layer(nn.Module):
    """Attention within documents, and a feed-forward network."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.queries = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Takes activations of shape (batch, S, width) and the attention mask of shape (batch, 1, S, S)."""
        parts = self.queries(self.norms[0](hidden)).unflatten(-1, (3 * self.heads, -1)).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(*parts.chunk(3, dim=1), attn_mask=seen)
        hidden = hidden + self.out(attended.transpose(1, 2).flatten(2))
        return hidden + self.narrow(functional.gelu(self.wide(self.norms[1](hidden))))


def make_loader(folder: Path, seq_len: int, edit: tuple[int, float] | None, ranks: int) -> sk.Loader:
    """Makes the loader, whose order depends neither on ranks nor on the length of windows."""
    data = sk.TokenDataset(
        {name: str(folder / name) for name in ("code", "prose")},
        seq_len,
        block_len=BLOCK_LEN,
        seed=7,
        documents="idx",
        outputs=["tokens", "labels", "loss_mask", "position_ids", "cu_seqlens"],
    )
    # A mixture of blocks, half from each corpus; the ledger around it also counts in blocks.
    mixture = sk.MixtureSampler({"code": None, "prose": None}, weights={"code": 0.5, "prose": 0.5}, seed=7)
    edits = []
    if edit is not None:
        step, share = edit
        weights = {"code": share, "prose": 1 - share}
        edits = [sk.Edit(at=step * TOKENS_A_STEP // BLOCK_LEN, weights=weights)]
    sampler = sk.BlockSampler(POOL, seed=7)
    sampler.add_child(sk.Ledger(mixture, edits))
    return sk.Loader(data, sampler, batch_size=TOKENS_A_STEP // seq_len // ranks, tail="drop")


def train(folder: Path, steps: int, seq_len: int, edit: tuple[int, float] | None) -> None:
    """Trains up to a step, from the last checkpoint if there is one."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    network = GPT()
    model = DistributedDataParallel(network) if ranks > 1 else network
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    checkpoint, step = folder / "checkpoint.pt", 0
    with make_loader(folder, seq_len, edit, ranks) as loader:
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            network.load_state_dict(saved["network"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["loader"])
            step = saved["step"]
        if rank == 0:
            print(f"step {step}: {ranks} ranks, windows of {seq_len} tokens", flush=True)
        while step < steps:
            for batch in loader:
                loss = learn(model, optimizer, batch, ranks)
                share = 0.5 if edit is None or step < edit[0] else edit[1]
                step += 1
                if rank == 0:
                    with (folder / "losses.jsonl").open("a") as file:
                        file.write(json.dumps([step, loss, ranks, seq_len, share]) + "\n")
                    if step % SAVE_EVERY == 0:
                        print(f"step {step}: loss {loss:.3f}", flush=True)
                        state = {
                            "network": network.state_dict(),
                            "optimizer": optimizer.state_dict(),
                            "loader": loader.state_dict(),  # the same on all ranks
                            "step": step,
                        }
                        torch.save(state, folder / "checkpoint.new")
                        (folder / "checkpoint.new").replace(checkpoint)  # atomic: the old file or the new one
                if step == steps:
                    break


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, Any], ranks: int) -> float:
    """Takes a step; returns the mean loss over the tokens of all ranks."""
    scores = model(batch["tokens"], batch["position_ids"], batch["cu_seqlens"])
    losses = functional.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    # After the last token of a document comes another document, which cannot be predicted.
    masked = losses * batch["loss_mask"].flatten()
    sums = torch.stack([masked.detach().sum(), batch["loss_mask"].sum()])
    if ranks > 1:
        dist.all_reduce(sums)
    # DDP averages the gradients of the ranks, which may have different numbers of counted tokens.
    optimizer.zero_grad()
    (masked.sum() * ranks / sums[1]).backward()
    optimizer.step()
    return float(sums[0] / sums[1])


def plot(folder: Path, picture: Path) -> None:
    """Plots the loss of each step and marks the changes; of repeated steps the last one counts."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # an extra

    losses = {line[0]: line for line in map(json.loads, (folder / "losses.jsonl").read_text().splitlines())}
    steps = sorted(losses)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, [losses[step][1] for step in steps], linewidth=0.6, alpha=0.5)
    latest = [[losses[near][1] for near in steps[max(0, at - 9) : at + 1]] for at in range(len(steps))]
    axes.plot(steps, [sum(few) / len(few) for few in latest], color="C0")
    before: list[Any] = []
    for step in steps:
        _, loss, *now = losses[step]
        if now != before:
            ranks, seq_len, share = now
            label = f"{ranks} rank{'s'[: ranks > 1]}, S = {seq_len}\n{share:.0%} code"
            axes.axvline(step, color="grey", linewidth=0.8, linestyle="--")
            axes.annotate(label, (step, loss), (step + 4, axes.get_ylim()[1]), va="top", fontsize=8)
        before = now
    axes.set_xlabel("step of 2,048 tokens")
    axes.set_ylabel("loss a byte, nats")
    figure.savefig(picture, dpi=100)


def edit_of(text: str) -> tuple[int, float]:
    """Parses STEP:SHARE."""
    step, share = text.split(":")
    return int(step), float(share)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for corpora, checkpoints and losses")
    parser.add_argument("--steps", type=int, default=160, help="train up to this step")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--edit", type=edit_of, metavar="STEP:SHARE", help="the share of code from a step on")
    parser.add_argument("--plot", type=Path, help="plot the losses instead of training")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the processes share the CPU
    if options.plot:
        plot(options.folder, options.plot)
        raise SystemExit
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    if os.environ.get("RANK", "0") == "0" and not (options.folder / "prose.idx").exists():
        write_corpora(options.folder)
    if dist.is_initialized():
        dist.barrier()
    train(options.folder, options.steps, options.seq_len, options.edit)
    if dist.is_initialized():
        dist.destroy_process_group()
