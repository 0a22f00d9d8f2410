"""Writes the generated parts of docs/performance.md: tables from results, each between its two markers."""

import re
from collections.abc import Callable
from typing import Any

from tests.benchmarks.peers.cases import CELL_GIB, CELL_SECONDS, RESIZES
from tests.benchmarks.peers.limits import ENDED

Results = dict[str, Any]

NAMES = {
    "samplerkit": "samplerkit",
    "torch": "torch",
    "torchdata": "torchdata",
    "grain": "Grain",
    "streaming": "MosaicML streaming",
    "mindspore": "MindSpore",
    "webdataset": "webdataset",
}
NOTHING = ""


def table(header: list[str], rows: list[list[str]]) -> str:
    """Gives a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def duration(seconds: float) -> str:
    """Gives seconds in the unit that fits."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def memory(mib: float) -> str:
    """Gives MiB in the unit that fits."""
    if mib < 1:
        return "under 1 MiB"
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB"


def rate(per_second: float) -> str:
    """Gives things a second."""
    return f"{per_second / 1e6:.3g} M" if per_second >= 1e6 else f"{per_second / 1e3:.3g} k"


def power(size: int) -> str:
    """Gives a size as a power of ten."""
    return f"10^{len(str(size)) - 1}"


def peers_of(results: Results) -> list[str]:
    """Gives the peers that ran, in the order of the tables."""
    return [peer for peer in NAMES if "curve" in results["peers"].get(peer, {})]


def cell_of(results: Results, peer: str, name: str, size: int) -> dict[str, Any]:
    """Gives one measured cell of a curve; empty where there is none."""
    cells = results["peers"][peer]["curve"]
    return next((cell for cell in cells if (cell["cell"], cell["size"]) == (name, size)), {})


def sizes_of(results: Results) -> list[int]:
    """Gives the sizes that were measured."""
    return sorted({cell["size"] for peer in peers_of(results) for cell in results["peers"][peer]["curve"]})


def curve_table(results: Results, name: str, key: str, shown: Callable[[float], str]) -> str:
    """Gives a table of one figure: a row for each size, a column for each peer that offers it."""
    offered, missing = [], []
    for peer in peers_of(results):
        reasons = {cell.get("none") for cell in results["peers"][peer]["curve"] if cell["cell"] == name}
        (missing if reasons - {None} else offered).append((peer, reasons))
    rows = []
    for size in sizes_of(results):
        cells = [cell_of(results, peer, name, size) for peer, _ in offered]
        rows.append(
            [power(size), *(shown(cell[key]) if key in cell else cell.get(ENDED, "") for cell in cells)]
        )
    text = table(["n", *(NAMES[peer] for peer, _ in offered)], rows)
    if missing:
        text += "\n\nNot in the table: " + "; ".join(
            f"{NAMES[peer]} ({', '.join(sorted(filter(None, reasons)))})" for peer, reasons in missing
        )
        text += "."
    return text


def machine_text(results: Results) -> str:
    """Where, when and from what the figures are."""
    machine = results["machine"]
    host = f"{machine['cores']} shared cores without a GPU, {machine['machine']}, Python {machine['python']}"
    took = f"{round(results['seconds'] / 60)} minutes"
    lines = [f"Last run on {machine['date']}, at commit {machine['commit']}: {host}; {took}."]
    if machine.get("in_front"):
        lines.append("Other work was on the machine, and this in front of it (`chrt -f`).")
    if results.get("quick"):
        lines.append("A quick run: small sizes only.")
    if not results.get("in_one_run", True):
        lines.append("Not all of it in one run.")
    return " ".join(lines)


def versions_table(results: Results) -> str:
    """The measured libraries, and those that were not measured, with the reason."""
    rows = []
    for peer, name in NAMES.items():
        result = results["peers"].get(peer, {"not_run": "it was not asked for"})
        versions = ", ".join(f"{key} {value}" for key, value in result.get("versions", {}).items())
        rows.append([name, versions or f"not run: {result['not_run']}"])
    return table(["who", "versions"], rows)


def rows_table(results: Results) -> str:
    """Gives the samples a second end to end."""
    rows = []
    tables = {peer: results["peers"][peer]["rows"] for peer in peers_of(results)}
    base = {
        cell["workers"]: cell for cell in tables.get("torch", []) if cell.get("variant") == "`__getitem__`"
    }
    for peer, cells in tables.items():
        for variant in dict.fromkeys(cell["variant"] for cell in cells if "variant" in cell):
            row = [NAMES[peer], variant]
            for workers in (0, 2):
                cell = next(
                    (c for c in cells if c.get("variant") == variant and c["workers"] == workers), None
                )
                times = cell and workers in base and cell["per_second"] / base[workers]["per_second"]
                row.append(f"{rate(cell['per_second'])} ({times:.2g})" if cell and times else NOTHING)
            rows.append(row)
        rows += [[NAMES[peer], cell[ENDED], NOTHING, NOTHING] for cell in cells if ENDED in cell]
    return table(["who", "reads", "0 workers", "2 workers"], rows)


def ranks_table(results: Results) -> str:
    """Gives lost and repeated samples for each change of the number of ranks."""
    rows = []
    for peer in peers_of(results):
        cells = results["peers"][peer]["ranks"]
        for rule in dict.fromkeys(cell["rule"] for cell in cells if "rule" in cell):
            by_case = {cell["case"]: cell for cell in cells if cell.get("rule") == rule}
            row = [f"{NAMES[peer]}: {rule}"]
            for case in RESIZES:
                cell = by_case.get(case.name, {})
                row.append(f"{cell['lost']} / {cell['repeated']}" if "lost" in cell else cell.get("none", ""))
            rows.append(row)
        rows += [[f"{NAMES[peer]}: {cell[ENDED]}"] for cell in cells if ENDED in cell]
    return table(["lost / repeated", *(case.name for case in RESIZES)], rows)


REASONS = {
    "first batch": "caches are empty behind a collection of garbage, and more code runs here; warm: below",
    "memory": "many ids are made at once, and their arrays are what grows; Grain has one; now: below",
    "ids a second": "1,250 ids: nearly all of their time is that of the first batch; warm: below",
    "resume": "a state is checked here: its checksum, its fields, the dataset and the chain; parts: below",
    "end to end": "both read in torch's processes; threads send nothing: they have another table",
}
"""Why a peer may be ahead in a figure, by its beginning."""


def ahead_table(results: Results) -> str:
    """Gives every figure in which a peer is ahead of samplerkit, and why."""
    rows = []
    figures: list[tuple[str, str, str, Callable[[float], str], int]] = [
        ("first batch", "epoch", "seconds", duration, -1),
        ("memory", "epoch", "mib", memory, -1),
        ("ids a second", "epoch", "per_second", rate, 1),
        ("seek", "seek", "seconds", duration, -1),
        ("resume", "resume", "seconds", duration, -1),
    ]
    for title, name, key, shown, sign in figures:
        for size in sizes_of(results):
            ours = cell_of(results, "samplerkit", name, size).get(key)
            for peer in peers_of(results)[1:]:
                theirs = cell_of(results, peer, name, size).get(key)
                if (
                    None not in (ours, theirs)
                    and sign * theirs > sign * ours
                    and shown(ours) != shown(theirs)
                ):
                    rows.append([f"{title}, n = {power(size)}", NAMES[peer], shown(theirs), shown(ours)])
    best = {
        (cell["workers"]): max(c["per_second"] for c in ours_of(results) if c["workers"] == cell["workers"])
        for cell in ours_of(results)
    }
    for peer in peers_of(results)[1:]:
        for cell in results["peers"][peer]["rows"]:
            ours = best.get(cell.get("workers"))
            if "per_second" in cell and ours is not None and cell["per_second"] > ours:
                measured = f"end to end, {cell['workers']} workers, {cell['variant']}"
                rows.append([measured, NAMES[peer], rate(cell["per_second"]), rate(ours)])
    if not rows:
        return "None in this run."
    for row in rows:
        row.append(next((why for begin, why in REASONS.items() if row[0].startswith(begin)), ""))
    return table(["figure", "peer", "its", "ours", "why"], rows)


def ours_of(results: Results) -> list[dict[str, Any]]:
    """Gives samplerkit's cells of rows in memory."""
    return [cell for cell in results["peers"]["samplerkit"]["rows"] if "per_second" in cell]


def summary_table(results: Results) -> str:
    """Gives the figures of one size, a row for each peer, for the README."""
    size = min(SUMMARY_SIZE, max(sizes_of(results)))
    columns: list[tuple[str, str, Callable[[float], str]]] = [
        ("epoch", "seconds", duration),
        ("epoch", "mib", memory),
        ("epoch", "per_second", rate),
        ("resume", "seconds", duration),
    ]
    rows = []
    for peer in peers_of(results):
        cells = [(cell_of(results, peer, name, size), key, shown) for name, key, shown in columns]
        figures = [shown(cell[key]) if key in cell else cell.get(ENDED, "none") for cell, key, shown in cells]
        if all("none" in cell for cell, _, _ in cells):
            continue  # it has no ids
        changes = [cell for cell in results["peers"][peer]["ranks"] if cell.get("case") == SUMMARY_RESIZE]
        counted = [cell for cell in changes if "lost" in cell]
        best = min(counted, key=lambda cell: cell["lost"] + cell["repeated"], default={})
        figures.append(f"{best['lost']} / {best['repeated']}" if best else "none")
        rows.append([NAMES[peer], *figures])
    header = [f"n = {power(size)}", "first batch of ids", "memory", "ids a second", "resume in mid-epoch"]
    return table([*header, f"{SUMMARY_RESIZE}: lost / repeated"], rows)


SUMMARY_SIZE = 10**8
SUMMARY_RESIZE = "4 to 3, same batch per rank"
"""What the README shows: where a peer can resume in several ways, the one that loses and repeats least."""

BLOCKS: dict[str, Callable[[Results], str]] = {
    "machine": machine_text,
    "summary": summary_table,
    "versions": versions_table,
    "first": lambda results: curve_table(results, "epoch", "seconds", duration),
    "memory": lambda results: curve_table(results, "epoch", "mib", memory),
    "rate": lambda results: curve_table(results, "epoch", "per_second", rate),
    "seek": lambda results: curve_table(results, "seek", "seconds", duration),
    "resume": lambda results: curve_table(results, "resume", "seconds", duration),
    "rows": rows_table,
    "ranks": ranks_table,
    "ahead": ahead_table,
    "limits": lambda _: (
        f"A cell that takes over {CELL_SECONDS:g} s or {CELL_GIB:g} GiB is ended, and says so."
    ),
}
"""What each part of the page holds; `text NAME` parts hold what a benchmark printed."""

PART = re.compile(r"(<!-- generated: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, results: Results) -> str:
    """Fills the generated parts of a page.

    Args:
        text: of the page; the text between the markers is replaced.
        results: from `collect`.

    Raises:
        KeyError: a marker names no part.
    """

    def part(match: re.Match[str]) -> str:
        name = match[2]
        if name.startswith("text "):
            body = results["texts"].get(name.removeprefix("text "), "Not run.")
        else:
            body = BLOCKS[name](results)
        return f"{match[1]}\n{body}\n\n{match[3]}"

    return PART.sub(part, text)
