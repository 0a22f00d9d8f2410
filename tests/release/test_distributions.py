"""The wheel and the sdist: what is in them, and that both work where nothing else is.

They are built from the tracked files with other files of a working folder, which must not be included.
"""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import samplerkit as sk

pytestmark = pytest.mark.release

ROOT = Path(__file__).parents[2]
GENERATED = {"PKG-INFO", "setup.cfg"}
EXCLUDED = {".gitignore"}
LYING_ABOUT = (
    "samplerkit/order/__pycache__/order.cpython-311.pyc",
    "build/lib/samplerkit/an_old_module.py",
    "samplerkit.egg-info/SOURCES.txt",
    "tests/order/__pycache__/test_order.cpython-311.pyc",
    "notes.txt",
)

TRIED_BY_THE_WHEEL = """
import importlib.metadata, sys
import samplerkit as sk
assert "site-packages" in sk.__file__, sk.__file__
assert importlib.metadata.version("samplerkit") == sk.__version__
assert not {"torch", "numpy", "pydantic", "typer", "rich"} & set(sys.modules)
loader = sk.Loader(range(10), sk.RandomSampler(seed=7), batch_size=4)
first = next(iter(loader)).tolist()
again = sk.Loader(range(10), sk.RandomSampler(seed=7), batch_size=4)
again.load_state_dict(loader.state_dict())
assert sorted(first + [id for batch in again for id in batch.tolist()][:6]) == list(range(10))
for name in sk.__all__:
    getattr(sk, name)
print(len(sk.__all__), "public names")
"""


@pytest.fixture(scope="module")
def tracked():
    """The files of the repository, by their names."""
    command = ["git", "ls-files"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}


@pytest.fixture(scope="module")
def built(tracked, tmp_path_factory):
    """The sdist, and the wheel that is made of it."""
    folder = tmp_path_factory.mktemp("source")
    for name in tracked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in LYING_ABOUT:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("lies about\n")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder / "out", folder], check=True)
    (sdist,) = (folder / "out").glob("*.tar.gz")
    (wheel,) = (folder / "out").glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def python_of_the_wheel(built, tmp_path_factory):
    """The Python of an environment in which nothing but the wheel and what it asks for is installed."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-I", "-m", "pip", "install", "-q", "torch==2.13.0", built[1]], check=True)
    return python


def test_the_sdist_is_the_repository_and_nothing_else(built, tracked):
    with tarfile.open(built[0]) as sdist:
        names = {member.name.split("/", 1)[1] for member in sdist if member.isfile()}
    about = {name for name in names if name in GENERATED or name.startswith("samplerkit.egg-info/")}
    assert names - about == tracked - EXCLUDED


def test_the_wheel_is_the_package_and_nothing_else(built, tracked):
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
    about = {name for name in names if name.startswith(f"samplerkit-{sk.__version__}.dist-info/")}
    assert names - about == {name for name in tracked if name.startswith("samplerkit/")}
    assert {"METADATA", "entry_points.txt", "LICENSE"} <= {Path(name).name for name in about}


def test_the_wheel_works_in_an_environment_that_has_nothing_else(python_of_the_wheel, tmp_path):
    for command in (
        [python_of_the_wheel, "-I", "-c", TRIED_BY_THE_WHEEL],
        [python_of_the_wheel.with_name("samplerkit"), "--version"],
        [python_of_the_wheel.with_name("samplerkit"), "plan", "--help"],
        [python_of_the_wheel, "-I", "-m", "pip", "check"],
    ):
        subprocess.run(command, cwd=tmp_path, env={}, check=True)


def test_an_editable_install_is_found_from_the_folder_above_the_checkout(built, tmp_path):
    """There the checkout itself looks like a namespace package of that name."""
    with tarfile.open(built[0]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    next(tmp_path.iterdir()).rename(tmp_path / "samplerkit")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "editable"], check=True)
    python = tmp_path / "editable" / "bin" / "python"
    install = [python, "-I", "-m", "pip", "install", "-q", "--no-deps", "-e", tmp_path / "samplerkit"]
    subprocess.run(install, check=True)
    command = [python, "-c", "import samplerkit as sk; print(sk.__version__)"]
    printed = subprocess.run(command, cwd=tmp_path, env={}, check=True, capture_output=True, text=True).stdout
    assert printed.strip() == sk.__version__


def test_the_tests_of_the_sdist_run_from_it(built, tmp_path):
    with tarfile.open(built[0]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    chosen = ["tests/cli/test_command.py", "tests/loading/test_saved_states.py"]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", *chosen]
    subprocess.run(command, cwd=folder, env={"PATH": "/usr/bin:/bin"}, check=True)
