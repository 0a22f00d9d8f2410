"""The command `samplerkit edit`: adds an edit to the config of a run that resumes from a checkpoint."""

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from samplerkit.cli.opening import FromOne, FromZero, NumRanks, load_run, state_in
from samplerkit.cli.printing import Result, counted, writing
from samplerkit.config.config import load_config
from samplerkit.config.reading import array_at, parse, plain
from samplerkit.errors import NotSupportedError
from samplerkit.inspect.view import loader_of
from samplerkit.order.deal import World
from samplerkit.samplers.block import block_sampler_of
from samplerkit.samplers.mixing.edit import Edit
from samplerkit.storage.urls import is_remote


def edit(
    state: Annotated[Path, typer.Argument(metavar="STATE")],
    config: str,
    output: Annotated[Path, typer.Option("--output", "-o")],
    at: FromZero | None = None,
    skip: FromOne | None = None,
    weights: str | None = None,
    source: str | None = None,
    without: Path | None = None,
    global_batch: FromOne | None = None,
    world: NumRanks = None,
) -> Result:
    """Add an edit to the config of a run that resumes from a checkpoint, and print what it changes.

    Options:
        state: the checkpoint from which the run resumes.
        config: the config of the run.
        output: the path of the edited config.
        at: the position of the edit; by default that of the checkpoint.
        skip: the number of positions to skip.
        weights: shares of the sources, such as web=0.5,code=0.5.
        source: a part of the dataset to add as a source; or parts and their samplers, as YAML such as
            'new: {kind: random, seed: 7}'. --weights sets their shares.
        without: a .npy file with the ids that are no longer read.
        global_batch: samples of all ranks in each step from that position on.
    """
    if not is_remote(config):  # the output may be in another folder, so its paths are absolute
        config = str(Path(config).absolute())
    original = load_config(config, check_quality=False)
    # A source may be a part that the tree did not have when the state was saved.
    with ExitStack() as quiet:
        if source is not None:  # no warning that the run would skip this part: the edit adds it
            logging.disable(logging.WARNING)
            quiet.callback(logging.disable, logging.NOTSET)
        loader = load_run(original, world, state, allow=() if source is None else {"dataset"})
    if block_sampler_of(original.sampler) is not None:
        problem = "reads blocks: its edits belong to a ledger below it, which counts in blocks"
        hint = "write the edit into the config: child: {kind: ledger, edits: [...], child: ...}"
        raise NotSupportedError("sampler", problem, original.sampler, hint=hint)
    position = loader.editable_from
    shares = None if weights is None else _shares(weights)
    ids = None if without is None else array_at(str(without), "--without")
    parts = None if source is None else _parts(source)
    # Their samplers are read with the whole config, so that an error shows the path of the key there.
    names = dict.fromkeys(parts) if isinstance(parts, dict) else parts
    change = Edit(position if at is None else at, shares, skip, ids, names, global_batch)
    if change.at < position:
        raise typer.BadParameter(f"is before {position}, the position of the checkpoint", param_hint="--at")
    written = original.to_dict()
    if written["sampler"]["kind"] != "ledger":
        written["sampler"] = {"kind": "ledger", "child": written["sampler"]}
    section = change.fields if without is None else {**change.fields, "without": str(without.resolve())}
    section |= {} if parts is None else {"source": parts}
    written["sampler"]["edits"] = [*written["sampler"].get("edits", []), section]
    # Check that the config can be read, that its order can be built, and that the checkpoint fits it.
    edited = loader_of(load_config(written, check_quality=False), World(loader.world.num_shards, 0))
    edited.load_state_dict(state_in(state))
    size = len(edited.order)
    with writing("--output"):
        output.write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
    epoch, place = divmod(change.at, size)
    result = {
        "written": str(output),
        "edits": len(written["sampler"]["edits"]),
        "at": change.at,
        "epoch": epoch,
        "position": place,
        "unchanged": change.at - position,
        "skipped": change.skip or 0,
        "without": 0 if ids is None else len(ids),
        "order": edited.fingerprint,
    }
    facts = [
        ("written", f"{output}, {counted(result['edits'], 'edit')}"),
        ("at", f"{change.at:,}: position {place:,} of epoch {epoch}"),
        ("unchanged", f"{counted(change.at - position, 'position')} after the checkpoint"),
        ("edit", repr(change)),
        ("order", edited.fingerprint),
    ]
    return Result(result, [facts])


def _parts(text: str) -> str | dict[str, Any]:
    """Parses the name of a part, or YAML of parts and their samplers."""
    parts = parse(text, "--source")
    return plain(parts, "--source") if isinstance(parts, dict) else text


def _shares(text: str) -> dict[str, float]:
    """Parses `web=0.5,code=0.5`."""
    try:
        pairs = [pair.split("=") for pair in text.split(",")]
        shares = {name.strip(): float(share) for name, share in pairs}
    except ValueError:
        problem = f"{text!r} is not a list of shares; write for instance web=0.5,code=0.5"
        raise typer.BadParameter(problem, param_hint="--weights") from None
    if len(shares) < len(pairs):
        raise typer.BadParameter(f"{text!r} names a source twice", param_hint="--weights")
    return shares
