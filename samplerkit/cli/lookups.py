"""The commands `samplerkit at`, `when`, `seen` and `state`: which samples are read, by whom, and when.

`at` and `when` compute it from the order, `seen` and `state` from a checkpoint.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from samplerkit.cli.opening import ConfigPath, FromZero, NumRanks, load_run, parse_epochs, state_in, states_in
from samplerkit.cli.printing import Facts, Part, PrintedTable, Result, counted, writing
from samplerkit.errors import ArgumentValueError, SamplerkitError
from samplerkit.inspect.time_machine import BatchRead, StepRead, when_document
from samplerkit.inspect.time_machine import at as read_at
from samplerkit.inspect.time_machine import when as read_when
from samplerkit.inspect.view import RunView
from samplerkit.loading.loader import Loader
from samplerkit.loading.run.history import History
from samplerkit.loading.state.state import State
from samplerkit.order.dataset_protocol import file_number
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.atomic import atomic
from samplerkit.storage.files.packages import extra

_MAX_IDS = 64
_MAX_TIMES = 20


def at(
    config: ConfigPath,
    epoch: FromZero,
    step: FromZero,
    rank: FromZero = 0,
    world: NumRanks = None,
    state: Path | None = None,
) -> Result:
    """Show what a rank reads in a step, without a log of the run.

    Options:
        epoch: the epoch, from 0.
        step: the step, from 0.
        rank: the rank, from 0.
        state: a checkpoint from which the run resumes: JSON, or torch.save.
    """
    read = read_at(load_run(config, world, state), epoch, step, rank)
    parts: list[Part] = [_facts(read)]
    if read.spans is not None and read.batch is None:
        parts += ["", _spans(read)]
    elif read.files is not None:
        parts += ["", _files(read.files, read.names)]
    return Result(read.to_dict(), parts)


def _facts(read: StepRead) -> Facts:
    pads = int(read.pads.sum())
    among = f", {counted(pads, 'pad')} among them" if pads else ""
    place = f"epoch {read.epoch}, step {read.step:,} of {read.num_steps:,}"
    yield "read", f"{place}, rank {read.rank} of {read.num_ranks}"
    yield "order", read.fingerprint
    if read.batch is not None:
        yield from _of_batch(read.batch, among)
    else:
        positions = read.positions
        last = f" to {positions.max():,}" if positions.size > 1 else ""
        yield "positions", f"{positions.min():,}{last}"
        yield "samples", counted(len(read.ids), "sample") + among
        if read.tokens is not None:
            yield "tokens", f"{read.tokens:,}{_of_documents(read)}"
    yield "ids", _list_ids(read.ids)
    if read.batch is None and pads:
        yield "pads", _list_ids(read.ids[read.pads])


def _of_documents(read: StepRead) -> str:
    documents = {(file, document) for spans in read.spans or () for file, document, _, _ in spans}
    return "" if (not documents or (0, None) in documents) else f" of {counted(len(documents), 'document')}"


def _spans(read: StepRead) -> PrintedTable:
    """Returns a table of the documents in each window."""
    rows = [
        (id, file, "" if document is None else document, first, count)
        for id, spans in zip(read.ids.tolist(), read.spans or (), strict=True)
        for file, document, first, count in spans
    ]
    return PrintedTable(("window", "file", "document", "first", "tokens"), rows)


def _of_batch(batch: BatchRead, among: str) -> Facts:
    """Yields facts about a batch of samples of different lengths: its number, shape and tokens."""
    first, last = batch.numbers[0], batch.numbers[-1]
    cut = f"a part of {first:,} to {last:,}, which tail split cuts again"
    yield "batch", cut if first < last else f"{first:,}"
    count, *longest = batch.shape
    padded = f", padded to {' x '.join(map(str, longest))}" if longest else ""
    yield "samples", f"{counted(count, 'sample')}{padded}{among}"
    yield "tokens", f"{batch.tokens:,} of this rank, {batch.step_tokens:,} of all ranks in this step"


def _list_ids(ids: Ids) -> str:
    more = f" and {len(ids) - _MAX_IDS} more; --json lists all" if len(ids) > _MAX_IDS else ""
    return " ".join(map(str, ids[:_MAX_IDS].tolist())) + more


def _files(read: Ids, names: tuple[str, ...] | None) -> PrintedTable:
    columns = ("file", "samples", *(("name",) if names else ()))
    counts = Counter(sorted(read.tolist())).most_common()
    rows = [(file, count, *([names[file]] if names else [])) for file, count in counts]
    return PrintedTable(columns, rows, texts=("name",))


def when(
    config: ConfigPath,
    sample: FromZero | None = None,
    document: FromZero | None = None,
    file: str | None = None,
    epochs: str = "0:1",
    world: NumRanks = None,
    state: Path | None = None,
) -> Result:
    """Show when a sample, or a document of tokens, is read, in which step of which rank.

    Options:
        sample: the id of the sample.
        document: the number of a document of tokens in its file, in place of a sample.
        file: the file of the document, by number or name; by default file 0.
        epochs: one epoch, or a range such as 0:10.
        state: a checkpoint from which the run resumes: JSON, or torch.save.
    """
    if (sample is None) == (document is None):
        raise typer.BadParameter("give one of the two", param_hint="--sample or --document")
    selected = parse_epochs(epochs)
    view = RunView.of(load_run(config, world, state))
    layout, names = view.layout, view.layout.names or ()
    number = file_of_document(layout, document, file)
    results = times_read(view, selected, sample, document, number)
    query: dict[str, Any] = {"sample": sample}
    keys: tuple[str, ...] = ("rank", "step", "place", "position")
    columns = keys if view.recipe is None else (*keys[:3], "batch")
    if sample is None:
        query = {"document": document, "file": number}
        keys = columns = (*keys[:3], "window", "first", "tokens")
        facts = [("document", f"{document:,} of file {number}{f', {names[number]}' if names else ''}")]
    else:
        facts = [("sample", f"{sample:,} of {layout.num_samples:,}")]
        if layout.has_files:
            number = int(layout.file_of([sample])[0])  # type: ignore[arg-type]  # a list is an array to numpy
            facts.append(("file", f"{number}, {names[number]}" if names else str(number)))
    rows: list[tuple[object, ...]] = []
    for epoch, (entry, times) in zip(selected, results, strict=True):
        rows += [(epoch, *(time[key] for key in keys), "pad" * time["is_pad"]) for time in times]
        if not times:
            rows.append((epoch, *_unread(entry)))
    result = {**query, "num_ranks": view.num_ranks, "fingerprint": view.fingerprint}
    facts += [("order", view.fingerprint), ("ranks", str(view.num_ranks))]
    table = PrintedTable(("epoch", *columns, "note"), rows, texts=("note",), most=_MAX_TIMES * len(selected))
    return Result({**result, "epochs": [entry for entry, _ in results]}, [facts, "", table])


def file_of_document(layout: Layout, document: int | None, file: str | None) -> int:
    """Returns the number of the document's file, which is given by its number or name."""
    if document is None and file is not None:
        raise typer.BadParameter("requires --document", param_hint="--file")
    name = file or "0"
    return int(name) if name.isdecimal() else file_number(layout, name)


def times_read(
    source: Any,
    epochs: int | range,
    sample: int | None,
    document: int | None,
    file: int,
    start: int | None = None,
) -> list[tuple[Any, list[dict[str, Any]]]]:
    """Finds when a sample, or a document of tokens, is read.

    Args:
        source: a run, of any kind that `RunView.of` takes.
        epochs: one epoch, or several.
        sample: the id of the sample.
        document: the number of the document in its file, in place of a sample.
        file: the number of the document's file.
        start: the position at which the epochs begin.

    Returns:
        For each epoch the whole result as plain data, and a list of each time that the sample, or a part of
        the document, is read.
    """
    if document is None:
        of_sample = [asdict(result) for result in read_when(source, sample or 0, epochs, start=start)]
        return [(result, result["occurrences"]) for result in of_sample]
    by_epoch = when_document(source, document, epochs, file=file, start=start)
    of_document = [[asdict(part) for part in parts] for parts in by_epoch]
    return [(parts, [{**part["read"], **part} for part in parts]) for parts in of_document]


def _unread(entry: Any) -> tuple[object, ...]:
    """Returns a table row that says why a sample or a document is not read in an epoch."""
    if isinstance(entry, list):
        return "-", "-", "-", "", "", "", "not read: empty, left out, or dropped by the tail"
    if not entry["unread"]:
        return "-", "-", "-", "", "not drawn"
    return "-", "-", "-", entry["unread"][0], "not read: the tail drops it, or it is before the start"


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
    with writing("--out"), atomic(path) as file:
        chunks = history.chunks(_CHUNK)
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
