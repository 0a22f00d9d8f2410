"""The commands `samplerkit state` and `seen`: the content of a checkpoint, and what was read up to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from samplerkit.cli.opening import ConfigPath, FromZero, NumRanks, load_run, state_in, states_in
from samplerkit.cli.printing import Part, PrintedTable, Result, counted, progress, writing
from samplerkit.cli.when import file_of_document, times_read
from samplerkit.errors import ArgumentValueError, SamplerkitError
from samplerkit.loading.loader import Loader
from samplerkit.loading.run.history import History
from samplerkit.loading.state.state import State
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.atomic import atomic
from samplerkit.storage.files.packages import extra
from samplerkit.storage.threads import Progress

_COLUMNS = ("epoch", "rank", "step", "place", "position")
_CHUNK = 1 << 20


def seen(
    config: ConfigPath,
    state: Path,
    since: Path | None = None,
    sample: FromZero | None = None,
    document: FromZero | None = None,
    file: str | None = None,
    part: str | None = None,
    out: Path | None = None,
    world: NumRanks = None,
) -> Result:
    """Show what a run has read up to a checkpoint: how much, of which part, and when a sample was read.

    Ranks and steps are those of a job with the config's ranks and batch size.

    Options:
        state: the checkpoint, JSON or from torch.save.
        since: an earlier checkpoint; leave out what was read up to it.
        sample: the id of a sample; show when it was read.
        document: the number of a document of tokens; show when it was read.
        file: the file of the document, by number or name; by default file 0.
        part: a part of a tree; show how much of it was read.
        out: write all ids, in the order of reading, to a .npy or .parquet file.
    """
    if out is not None and out.suffix not in (".npy", ".parquet"):
        raise typer.BadParameter("must end with .npy or .parquet", param_hint="--out")
    if sample is not None and document is not None:
        raise typer.BadParameter("give one of the two", param_hint="--sample or --document")
    loader = load_run(config, world, state)
    file_number = file_of_document(Layout.of(loader.dataset), document, file)
    history = loader.history()
    history = history if since is None else history.since(state_in(since))
    result: dict[str, Any] = {
        "samples": len(history),
        "is_complete": history.is_complete,
        "older_epochs": history.past.older,
        "read": [{"epoch": epoch, "from": begin, "to": end} for epoch, begin, end in history.parts],
    }
    older = f", and {counted(history.past.older, 'epoch')} before, whole or in part"
    read = counted(len(history), "sample") + (older if history.past.older else "")
    facts = [("read", read), ("order", loader.fingerprint)]
    columns: Sequence[str] = ("epoch", "epochs", "from", "to")
    rows: list[tuple[object, ...]] = [
        (span.epoch, span.epochs, span.begin, "the end" if span.end < 0 else span.end)
        for span in history.past.stretches
    ]
    if sample is not None or document is not None:
        result |= {"sample": sample} if document is None else {"document": document, "file": file_number}
        columns = _COLUMNS if document is None else (*_COLUMNS, "first", "tokens")
        occurrences = [
            time
            for epoch, begin, end in history.parts
            for _, times in times_read(loader, epoch, sample, document, file_number, begin)
            for time in times
            if time["position"] < end and not time["is_pad"]
        ]
        result["times"] = [{name: time[name] for name in (*columns, "is_pad")} for time in occurrences]
        rows = [tuple(time[name] for name in columns) for time in occurrences]
    if part is not None:
        result["part"] = part_reads = _of_part(loader, history, part)
        facts.append((part, f"{counted(part_reads['read'], 'sample')}, {part_reads['passes']:.3f} passes"))
    if out is not None:
        _write(history, out)
        result["out"] = str(out)
    nothing = "never" if "times" in result else "nothing"
    return Result(result, [facts, "", PrintedTable(columns, rows) if rows else nothing])


def _of_part(loader: Loader, history: History, name: str) -> dict[str, Any]:
    parts = Layout.of(loader.dataset).parts
    if name not in parts:
        raise ArgumentValueError(
            "part", "is not a part of the dataset", name, hint=f"parts: {', '.join(parts) or 'none'}"
        )
    read = history.by_source()[name]
    return {"name": name, "read": read, "passes": read / max(1, parts[name].num_samples)}


def _write(history: History, path: Path) -> None:
    """Writes the ids in chunks, to limit memory."""
    with writing("--out"), atomic(path) as file, progress() as report:
        chunks = _reported(history, report)
        if path.suffix == ".npy":
            header = {"descr": "<i8", "fortran_order": False, "shape": (len(history),)}
            np.lib.format.write_array_header_1_0(file, header)
            file.writelines(ids.astype("<i8").tobytes() for ids in chunks)
            return
        arrow = extra("pyarrow", "parquet")
        schema = arrow.schema([("id", arrow.int64())])
        with extra("pyarrow.parquet", "parquet").ParquetWriter(file, schema) as writer:
            for ids in chunks:
                writer.write_table(arrow.table({"id": ids}))


def _reported(history: History, report: Progress) -> Iterator[Ids]:
    for number, ids in enumerate(history.chunks(_CHUNK)):
        report("samples", number * _CHUNK, len(history))
        yield ids


def state(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    config: str | None = None,
    world: NumRanks = None,
) -> Result:
    """Show and verify the loader states in a checkpoint, at any place in it.

    Options:
        file: a checkpoint, JSON or from torch.save.
        config: a config that the state must fit.
    """
    loader = None if config is None else load_run(config, world)
    saved_states = states_in(file)
    states = [_verified(place, saved, loader) for place, saved in saved_states]
    parts: list[Part] = []
    for entry in states:
        facts = [(name, _shown(value)) for name, value in entry.items() if name != "problem"]
        parts += ["", facts] if parts else [facts]
    problems = [f"{entry['place']}: {entry['problem']}" for entry in states if entry["problem"]]
    if not saved_states:
        problems = ["holds no state of a samplerkit loader; save loader.state_dict()"]
    lines = [f"samplerkit: {file}: {problem}" for problem in problems]
    return Result({"file": str(file), "states": states}, parts, lines, is_failure=bool(problems))


def _verified(place: str, saved: dict[str, Any], loader: Loader | None) -> dict[str, Any]:
    result: dict[str, Any] = {"place": place}
    verdict, problem = "damaged, or of another version", None
    try:
        loaded = State.from_dict(saved)
        result |= {"order": loaded.fingerprint, **asdict(loaded), "seed": list(loaded.seed)}
        verdict = "whole: the checksum fits" if loader is None else "whole, but does not fit the config"
        if loader is not None:
            loader.load_state_dict(saved)
            verdict = "whole, and fits the config"
    except SamplerkitError as error:
        problem = str(error)
    return {**result, "verdict": verdict, "problem": problem}


def _shown(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    sections = {name: [f"{key} {entry}" for key, entry in fields.items()] for name, fields in value.items()}
    return "; ".join(f"{name}: {', '.join(fields)}" for name, fields in sections.items()) or "none"
