"""Pages, docstrings, messages and names are in plain words; what pages name exists; walks are followed."""

import ast
import io
import pkgutil
import re
import sys
import tokenize
from functools import cache
from pathlib import Path

import pytest

import samplerkit as sk

ROOT = Path(__file__).parents[2]

PLAIN = {
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bl(ie|ies|ay|ying) elsewhere\b": "is remote",
    r"\b(is|are|was|were) told\b": "receives, is given",
    r"\btells\b": "returns, reports, says",
    r"\b(go|goes|went|going) on\b": "continues, resumes",
    r"\bas (it|they) stands? in\b": "as it is in",
    r"\bstands? in\b(?! for)": "is in",
    r"\bunlike (samples|lengths)\b": "samples of different lengths",
    r"\banew\b": "again",
    r"\bheld against\b": "checked against",
    r"\b(dice|throws? a die)\b": "independent weighted draws",
    r"\bwhat is (asked for|left|there|wanted)\b(?! out)": "the noun: request, remainder, available samples",
    r"\bbeside the loop\b": "in a background thread",
    r"\bwhoever\b": "the caller, a thread, anyone who",
    r"\bas ever\b": "as before, as usual",
    r"\blies? outside\b": "is outside",
    r"\bsome hundred\b": "a number",
    r"\bin front of other work\b": "on a loaded machine",
    r"\bsay [\w`]+=": "use, pass, set",
}
"""Phrases, each with what to write."""

SPACED = {phrase.replace(" ", r"\s+"): plain for phrase, plain in PLAIN.items()}
ANY = re.compile("|".join(SPACED), re.IGNORECASE)

EXCEPTIONS = {
    ("samplerkit/samplers/mixing/mixture.py", "dice"): "a role in the keys of draws: orders depend on it",
}


def pieces(path):
    """Yields the prose of a page, or the strings and comments of a module or an example."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def found_in(path):
    """Returns the file, each phrase that it has, and what to write."""
    name = path.relative_to(ROOT).as_posix()
    return [
        (name, " ".join(match[0].lower().split()), plain)
        for piece in pieces(path)
        if ANY.search(piece)
        for phrase, plain in SPACED.items()
        for match in re.finditer(phrase, piece, re.IGNORECASE)
    ]


@cache
def all_found():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    modules = [*(ROOT / "samplerkit").rglob("*.py"), *(ROOT / "docs").rglob("*.py")]
    return [found for path in [*pages, *modules] for found in found_in(path)]


def test_pages_docstrings_and_messages_are_in_plain_words():
    wrong = [found for found in all_found() if found[:2] not in EXCEPTIONS]
    assert not wrong, "\n".join(f"{name}: {phrase!r}; write: {plain}" for name, phrase, plain in wrong)


def test_each_exception_is_needed():
    assert set(EXCEPTIONS) <= {found[:2] for found in all_found()}


NAMES = re.compile(
    "told|said|says|wanted|asked|asks|mine|begun|look|looks|looked|going|gone|there|here|lies|anew"
    "|beside|beyond|behind"
)
"""Words of the old dialect, which names in the package do not have."""

WORDS_OF_NAMES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
NAMES_KEPT = {
    ("samplerkit/inspect/quality/recommend.py", "wanted"): "public: a field of a recommendation, and a key",
    ("samplerkit/samplers/base.py", "looks_at"): "public: a method that samplers override",
    ("samplerkit/samplers/mixing/mixture.py", "looks_at"): "the same method",
    ("samplerkit/samplers/groups.py", "looks_at"): "the same method",
    ("samplerkit/storage/catalogue/making.py", "look"): "public: a function of docs/cluster.md",
    ("samplerkit/inspect/doctor/datasets.py", "vocabulary_beyond_dtype"): "public: the code of a finding",
    ("samplerkit/batches/set_plan.py", "_look_up"): "the verb, to look up",
    ("samplerkit/testing/dataset_contract.py", "lies"): "public: a method that contracts override",
}


def names_in(path):
    """Yields the names that a module defines: classes, functions, arguments, variables and attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def test_names_in_the_package_are_plain_words():
    odd = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "samplerkit").rglob("*.py")
        for name in names_in(path)
        if any(NAMES.fullmatch(word.lower()) for word in WORDS_OF_NAMES.findall(name))
    }
    assert odd == set(NAMES_KEPT)


PACKAGE = Path(sk.__file__).parent
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
