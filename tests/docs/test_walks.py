"""Names of modules on pages and in docstrings exist; the walks of the contributing page are followed."""

import pkgutil
import re
import sys
from pathlib import Path

import pytest

import samplerkit as sk

PACKAGE = Path(sk.__file__).parent
ROOT = PACKAGE.parent
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(PACKAGE.rglob("*.py"))]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
ROOMS = re.findall(r"^\| `(tar/\w*/?)` \|.*\| (.+) \|$", PAGE, re.MULTILINE)


def named_in(text):
    return set(re.findall(r"`(samplerkit(?:\.\w+)+)`", text))


def test_every_name_with_a_module_can_be_imported():
    named = {name for text in TEXTS for name in named_in(text.read_text(encoding="utf-8"))}
    assert len(named) > 5
    for name in sorted(named):
        pkgutil.resolve_name(name)


@pytest.mark.parametrize(("room", "told"), ROOMS, ids=[room for room, _ in ROOMS])
def test_the_rooms_of_tar_shards_name_each_of_their_files_once(room, told):
    files = sorted(file.stem for file in (PACKAGE / "storage" / room).glob("*.py") if file.stem != "__init__")
    assert sorted(re.findall(r"`(\w+)`", told)) == files


def told(title):
    """The files of a walk, as the page numbers them."""
    section = PAGE.partition(f"### {title}\n")[2].partition("\n#")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)`", section, re.MULTILINE)


def entered(run):
    """The files of the package whose functions are called meanwhile, each once, in the order of the calls."""
    files = {}

    def note(frame, event, _):
        if event == "call":
            files.setdefault(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    paths = [Path(file) for file in files if Path(file).is_relative_to(PACKAGE)]
    return [path.relative_to(PACKAGE).as_posix() for path in paths]


def loader():
    return sk.Loader(range(100), sk.RandomSampler(seed=7), batch_size=4)


def from_a_key():
    return lambda: sk.Config.from_yaml("sampler: {kind: random, seed: 7}")


def from_an_epoch():
    batches = loader()
    return lambda: next(iter(batches))


def from_a_recipe():
    recipe, sampler = sk.TokenBatches(64, lengths=[8, 2, 7, 2]), sk.RandomSampler(seed=7)
    return lambda: recipe.plan(sampler, 4)[0]


def from_a_state():
    batches, state = loader(), loader().state_dict(step=3)
    return lambda: batches.load_state_dict(state)


@pytest.mark.parametrize(
    ("title", "begin", "most"),
    [
        ("From a config key to its constructor", from_a_key, 8),
        ("From an epoch to a batch", from_an_epoch, 8),
        ("From a recipe to a batch", from_a_recipe, 8),
        ("From a saved state to the next batch", from_a_state, 3),
    ],
)
def test_a_walk_enters_its_files_in_the_documented_order(title, begin, most):
    begin()()  # what is imported or computed once is not on the way
    walk, way = told(title), entered(begin())
    assert 3 <= len(walk) <= most
    assert walk == [file for file in way if file in walk]
