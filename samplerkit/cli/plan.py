"""The commands `samplerkit plan` and `plot`: what a run will read, in figures and in pictures."""

import os
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from samplerkit.cli.opening import ConfigPath, FromOne, FromZero, NumRanks, load_run
from samplerkit.cli.printing import Facts, Result, counted, seconds_of, size_of, writing
from samplerkit.config.config import Config, load_config
from samplerkit.errors import SamplerkitError
from samplerkit.inspect.batches import BatchFigures, TokenFigures
from samplerkit.inspect.costs import FILES_IN_A_BLOCK, Downloads
from samplerkit.inspect.pictures.picture import Settings, draw, page_of
from samplerkit.inspect.plan import Plan, SourceFigures
from samplerkit.inspect.plan import plan as make_plan
from samplerkit.inspect.quality.figure import shown
from samplerkit.inspect.quality.mixing import MIN_SAMPLES
from samplerkit.inspect.quality.order_source import OrderSource, selector_of
from samplerkit.inspect.quality.recommend import Recommendation, recommend
from samplerkit.inspect.view import HINT, RunView, is_counted, loader_of
from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.storage.tree import TreeDataset
from samplerkit.storage.urls import shown as shown_path


def plan(
    config: ConfigPath,
    world: NumRanks = None,
    mixing: float = 0.5,
    cache_files: FromOne | None = None,
    cache_samples: FromOne | None = None,
    first_world: FromOne | None = None,
    ranks_per_machine: FromOne | None = None,
    samples_per_file: FromOne | None = None,
) -> Result:
    """Show what each rank will read, what that costs, and how well it mixes, without reading samples.

    Options:
        mixing: the mixing that a recommendation must reach, in (0, 1].
        cache_files: files that a rank can hold.
        cache_samples: samples that a rank can hold.
        first_world: ranks at the first start, of a run that resumes on another number of ranks.
        ranks_per_machine: ranks that share a cache of remote files; by default all.
        samples_per_file: an estimate, for files whose samples were not counted.
    """
    loaded = load_config(config, check_quality=False)
    if not is_counted(loaded.dataset):
        if samples_per_file is None:
            return _uncounted(loaded, world)
        loaded = replace(loaded, dataset=_estimated(loaded.dataset, samples_per_file))
    loader = load_run(loaded, world)
    if first_world is not None:
        # A state of the first start has the run constants that were fixed there.
        loader.load_state_dict(loader_of(loaded, World(first_world, 0)).state_dict())
    planned = make_plan(loader, ranks_per_machine=ranks_per_machine)
    facts, advised = [*_facts(planned)], None
    if planned.batches is not None:
        # No shuffle mode is recommended: a plan of batches mixes the samples itself.
        facts += _batches(planned.batches, planned.num_samples)
    elif planned.num_samples >= MIN_SAMPLES:
        is_remote = samples_per_file is not None or getattr(loader.dataset, "is_remote", False)
        mode, section = RunView.of(loader).mode, None
        advice = recommend(
            loader.dataset,
            planned.global_batch,
            mixing=mixing,
            cache_files=cache_files,
            cache_samples=cache_samples,
            lanes=(mode and mode.lanes) or max(planned.lanes, planned.num_ranks),
            # Files that are fetched whole should be mixed with others while they are in the cache.
            block_files=FILES_IN_A_BLOCK if is_remote else 0,
        )
        if advice.chosen is not None:
            section, reason = advised_section(loaded, loader.dataset, advice.chosen.arguments)
            if section is None:
                advice = replace(advice, chosen=None, reason=reason)
        text = _advice_text(advice)
        if section is not None and (loaded.sampler.get_child() is not None or mode is None):
            text += f"; write sampler: {in_yaml(section)}"
        facts += [*_quality(planned), ("advice", text)]
        advised = {**advice.to_dict(), "sampler": section}
    facts += _transfers(planned)
    return Result({**planned.to_dict(), "recommendation": advised}, [facts])


def _facts(plan: Plan) -> Facts:
    mode = "none" if plan.mode is None else plan.mode.upper()
    files = f" in {counted(plan.num_files, 'file')}" if plan.num_files else ""
    lanes = f", {plan.lanes} lanes" if plan.lanes > 1 else ""
    fewest = f", {plan.fewest_steps:,} on some" if plan.fewest_steps != plan.steps else ""
    yield "order", plan.fingerprint
    yield "sampler", plan.chain
    yield "mode", f"{mode}: {plan.reason}"
    yield "dataset", counted(plan.num_samples, "sample") + files
    yield "epoch", counted(plan.epoch_samples, "sample") + _tail(plan)
    a_step = counted(plan.global_batch, "sample")
    yield "ranks", f"{plan.num_ranks}, {_batch_sizes(plan)}, {a_step} a step{lanes}"
    yield "steps", f"{plan.steps:,} a rank{fewest}"
    yield "pads", _pads(plan)
    if plan.files_of_a_rank is not None:
        least = "" if plan.is_counted else "at least "
        worker = "" if plan.files_of_a_worker is None else f", {plan.files_of_a_worker:,} a worker"
        batch = f", {plan.files_of_a_batch or 0:.1f} a batch"
        yield "files", f"{least}{plan.files_of_a_rank:,} a rank{worker}{batch}"
    if plan.tokens is not None:
        yield from _tokens(plan.tokens)
    for name, source in plan.sources.items():
        yield "source", f"{name}: {_source(source)}"
    yield "start", f"{seconds_of(plan.start_seconds)} to the first batch of ids"
    list_text = f"a list of all ids would take {size_of(plan.list_bytes)} a rank"
    yield "memory", f"{size_of(plan.order_bytes)}; {list_text}"


def _tokens(tokens: TokenFigures) -> Facts:
    """Yields facts about windows of tokens: their sizes, and where `seq_len` may change."""
    text = f"{tokens.tokens_a_step:,} a step, {tokens.tokens_an_epoch:,} an epoch, in windows of "
    yield "tokens", f"{text}{tokens.seq_len:,} and blocks of {tokens.block_len:,}"
    if tokens.cut is not None:
        about = "" if tokens.is_exact else "about "
        yield "documents", f"{about}{100 * tokens.cut:.0f} % of the windows begin within one"
    every = tokens.steps_to_a_change
    if every != 0:
        when = "at the end of an epoch alone" if every is None else f"every {counted(every, 'step')}"
        yield "seq_len", f"may change {when}"


def _source(figures: SourceFigures) -> str:
    """Describes what an epoch reads of a source, and what the run has read of it by the end of the epoch."""
    share = figures.share_of_tokens
    of_tokens = "" if share is None else f", {100 * share:.1f} % of the tokens"
    read = "" if figures.tokens is None else f", {counted(figures.tokens, 'token')}"
    passes = f"{figures.passes:.2f} passes{read} by the end of the epoch"
    return f"{100 * figures.share:.1f} % of the samples{of_tokens}; {passes}"


def _batch_sizes(plan: Plan) -> str:
    if plan.batches is None:
        return f"batches of {plan.batch_size:,}"
    sizes = f"{plan.batches.smallest:,} to {plan.batches.largest:,}, {plan.batches.mean:,.1f} on average"
    return f"a batch each, of {sizes}"


def _pads(plan: Plan) -> str:
    if plan.batches is not None:
        return f"{plan.pads:,} whole batch{'es' * (plan.pads > 1)}" if plan.pads else "0"
    return f"{plan.pads}" + (f", at most {plan.most_pads_of_a_rank} a rank" if plan.pads else "")


def _batches(figures: BatchFigures, samples: int) -> Facts:
    """Yields facts about batches of samples of different lengths, and their cost."""
    about = "" if figures.is_counted else "about "
    window = "over the whole set" if figures.window is None else f"in windows of {figures.window:,} samples"
    left_out = f"; {counted(figures.dropped, 'sample')} left out" if figures.dropped else ""
    yield "batches", f"{figures.batches:,}, {window}, {figures.abreast:,} abreast{left_out}"
    yield "recipe", figures.recipe
    plain = shown(figures.plain_efficiency or 0.0)
    if figures.efficiency is not None and figures.documents_cut is not None:
        density = f"{figures.efficiency:.5f}".lstrip("0")  # it is nearly 1
        yield "density", f"{about}{density} of the packs is tokens; one document a row would have {plain}"
        share = figures.documents_cut / max(1, samples)
        yield "cut", f"{about}{counted(figures.documents_cut, 'document')}, {100 * share:.1f} %"
    elif figures.efficiency is not None and figures.plain_efficiency is not None:
        tokens = f"{about}{shown(figures.efficiency)} of the padded tokens are tokens"
        saved = f"{100 * max(0.0, figures.saved or 0.0):.0f} % of their padded tokens are saved"
        yield "padding", f"{tokens}; random batches of {round(figures.mean):,} would have {plain}: {saved}"
    if figures.fill is not None:
        yield "fill", f"{about}{shown(figures.fill)} of the budget is tokens"
    imbalance = f"{about}{figures.imbalance:.3f}"
    yield "imbalance", f"{imbalance}: the most expensive rank of a step, to the mean one"
    if figures.mixing is not None:
        yield "mixing", f"{shown(figures.mixing)} of those in a sample's batches are new ones, in 6 epochs"


def _quality(plan: Plan) -> Facts:
    if plan.mixing is not None:
        weakest, error = plan.mixing.weakest, plan.mixing.standard_error
        precision = "" if plan.mixing.exact else f" +- {shown(error)}"
        text = f"{shown(plan.mixing.value)}{precision}; 1 is a full shuffle; weakest {shown(weakest.value)}"
        yield "mixing", f"{text} in windows of {weakest.window:,} samples"
    if plan.effective_batch is not None:
        # A batch that takes equally from all files can be worth more than a random one.
        worth = counted(round(min(plan.effective_batch.value, plan.global_batch)), "random one")
        yield "batch", f"{counted(plan.global_batch, 'sample')}, worth {worth} if those of a file are alike"


def _advice_text(advice: Recommendation) -> str:
    if advice.chosen is None:
        return advice.reason
    settings = ", ".join(f"{name}: {value}" for name, value in advice.chosen.arguments.items())
    files = f"{counted(advice.chosen.files, 'file')} and " if advice.chosen.files else ""
    return (
        f"for a mixing of {shown(advice.wanted)}, {settings} is the cheapest: mixing "
        f"{shown(advice.chosen.mixing)}, a rank holds {files}{counted(advice.chosen.samples, 'sample')}"
    )


def _transfers(plan: Plan) -> Facts:
    """Yields facts about the requests and bytes that an epoch takes from the storage."""
    parts = plan.transfers_of_parts if plan.transfers is None else {"": plan.transfers}
    for part, downloads in parts.items():
        for name, value in _download_facts(downloads):
            yield name, f"{part}: {value}" if part else value
    remote = [downloads for downloads in parts.values() if downloads.is_remote]
    if len(remote) > 1:
        yield "total", _total(remote)


def _total(parts: Sequence[Downloads]) -> str:
    """Sums up the requests of all remote parts, by the way in which they are read."""
    about = "" if all(part.is_counted for part in parts) else "about "
    requests = [
        counted(sum(part.actual.requests for part in parts if part.way == kind), noun)
        for kind, noun in (("whole", "download"), ("ranges", "request"))
        if any(part.way == kind for part in parts)
    ]
    amount = size_of(sum(part.actual.bytes for part in parts))
    return f"{about}{' and '.join(requests)}, {amount} an epoch"


def _download_facts(fetch: Downloads) -> Facts:
    cache = "" if fetch.cached_files is None else f", of which the cache holds {fetch.cached_files:,}"
    where = "remote " if fetch.is_remote else ""
    yield "storage", f"{counted(fetch.num_files, f'{where}file')}, {size_of(fetch.num_bytes)}{cache}"
    about = "" if fetch.is_counted else "about "
    for kind, costs in (("whole", fetch.whole), ("ranges", fetch.ranges)):
        if costs is not None and (fetch.is_remote or kind == fetch.way):
            note = "; this is what it does" if fetch.ranges is not None and kind == fetch.way else ""
            count = counted(costs.requests, "download" if kind == "whole" else "request")
            yield kind, f"{about}{count} and {size_of(costs.bytes)} an epoch{note}"
    if fetch.advice:
        yield "costly", fetch.advice


def _estimated(dataset: Any, samples_per_file: int) -> Layout:
    """Returns the layout of a dataset, with an estimate for each file whose samples were not counted."""
    if isinstance(dataset, TreeDataset):
        parts = dataset.parts.items()
        return Layout.tree({name: _estimated(part, samples_per_file) for name, part in parts})
    return Layout.of(dataset) if is_counted(dataset) else Layout([samples_per_file] * len(_files(dataset)))


def _files(dataset: Any) -> Sequence[str]:
    files: Sequence[str] = getattr(dataset, "files", None) or dataset._source.shards.names
    return files


def _uncounted(config: Config, world: int | None) -> Result:
    """Returns what can be planned without the number of samples, and what cannot."""
    unknown = "samples, steps, mixing, requests and bytes: to count the samples all files would be fetched"
    hint = f"{HINT}; or guess: --samples-per-file 1000"
    view = RunView.of(config, world)
    files = None if isinstance(config.dataset, TreeDataset) else len(_files(config.dataset))
    figures = {"num_files": files, "num_ranks": view.num_ranks, "batch_size": view.batch_size}
    file_count = "remote files" if files is None else counted(files, "remote file")
    dealt = f"batches of {view.batch_size:,}" if view.recipe is None else "a batch of a plan each"
    facts = [("dataset", f"{file_count}, not counted"), ("ranks", f"{view.num_ranks}, {dealt}")]
    rest = {"unknown": unknown, "hint": hint}
    return Result({**figures, **rest}, [[*facts, *rest.items()]])


def _tail(plan: Plan) -> str:
    if plan.tail == "drop":
        noun = "" if plan.batches is None else " batches"
        return f", {plan.dropped:,}{noun} dropped by tail drop"
    return f", tail {plan.tail}"


def advised_section(config: Config, dataset: Any, mode: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Returns the sampler section that reads the same samples in a recommended mode, or why there is none."""
    layout = Layout.of(dataset)
    chooser = selector_of(config.sampler, len(layout))
    if chooser is not None:
        is_shuffled = OrderSource.of(config.sampler, dataset, None).is_shuffled
        problem = "chooses the samples, and a shuffle mode in its place would read others"
        remedy = "to mix them, put a random sampler over it"
        rest = "they are already fully shuffled" if is_shuffled else remedy
        return None, f"none: {type(chooser).__name__} {problem}; {rest}"
    section = _section(config.to_dict()["sampler"], mode)
    try:
        load_config({"sampler": section}, check_quality=False).check_order(layout)
    except SamplerkitError:
        return None, "none that reads the same samples as this chain"
    return section, ""


def in_yaml(section: dict[str, Any]) -> str:
    """Formats a section as YAML on one line.

    Example:
        >>> in_yaml({"kind": "random", "seed": 7, "shuffle": "files"})
        '{kind: random, seed: 7, shuffle: files}'
    """
    written: str = yaml.safe_dump(section, default_flow_style=True, sort_keys=False, width=10_000)
    return written.strip()


def _section(sampler: dict[str, Any], mode: dict[str, Any]) -> dict[str, Any]:
    """Returns the sampler with a mode: of the chain's `distributed` link, else of its `random` one."""
    links = [sampler]
    while "child" in links[-1]:
        links.append(links[-1]["child"])
    kinds = {link["kind"]: link for link in reversed(links)}
    link = kinds.get("distributed") or kinds.get("random") or {"kind": "random"}
    rest = {name: value for name, value in link.items() if name not in ("child", "shuffle", "partial_size")}
    if mode["shuffle"] == "false" and rest["kind"] == "random":
        return {"kind": "sequential"}
    return {**rest, **mode}


def plot(
    configs: Annotated[list[str], typer.Argument(metavar="CONFIG")],
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    world: NumRanks = None,
    epoch: FromZero = 0,
    open_page: Annotated[bool, typer.Option("--open")] = False,
) -> Result:
    """Draw what is read when, which files are mixed, how well, and how many files a batch needs.

    Options:
        configs: configs, at most four.
        output: a .png file, or an .html page.
        epoch: the epoch that is drawn.
        open_page: open a page in which mode, ranks, files and blocks can be changed.
    """
    if open_page and len(configs) > 1:
        raise typer.BadParameter("has several configs, but --open shows one", param_hint="CONFIG")
    if output is None and not open_page:
        raise typer.BadParameter("is missing: give a .png or .html file, or --open", param_hint="--output")
    if open_page and output is not None and output.suffix.lower() != ".html":
        raise typer.BadParameter("must end in .html, for a page", param_hint="--output")
    names = [Path(shown_path(path)).stem for path in configs]
    if len(set(names)) < len(names):
        names = [shown_path(path) for path in configs]
    # The bytes of a name may not be valid text, which no font could show.
    names = [name.encode(errors="backslashreplace").decode() for name in names]
    views = {name: RunView.of(load_run(path, world)) for name, path in zip(names, configs, strict=True)}
    if output is None:
        with tempfile.NamedTemporaryFile(prefix="samplerkit-", suffix=".html", delete=False) as file:
            output = Path(file.name)
    with writing("--output"):
        if open_page:
            (view,) = views.values()
            output.write_text(page_of(Settings.of(view, epoch)), encoding="utf-8")
        else:
            draw(views, output, epoch=epoch)
    size, orders = output.stat().st_size, {name: view.fingerprint for name, view in views.items()}
    result = {"output": str(output), "bytes": size, "orders": orders}
    if open_page and _has_display():
        webbrowser.open(output.resolve().as_uri())
    return Result(result, [f"{output}: {size:,} bytes"])


def _has_display() -> bool:
    """Returns whether a graphical browser can open; a text browser would take the terminal and not draw."""
    variables = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in {"darwin", "win32"} or any(os.environ.get(name) for name in variables)
