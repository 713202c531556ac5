"""What users install: an sdist and a wheel with `rstream` and Spark's way to it, which work without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = [
    "rstream.operators.sources",
    "rstream.schedulers",
    "rstream.state.keyed",
    "rstream.topologies",
    "rstream.core.task",
]

TOPS = {"rstream", "pyspark_rstream.py"}

pytestmark = pytest.mark.long  # two builds and a virtual environment


def python(*arguments: str, cwd: Path, executable: str = sys.executable) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git tracks, so that the build leaves nothing behind here and takes nothing untracked along."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
        elif source.exists():
            target.write_bytes(source.read_bytes())
    return folder


@pytest.fixture(scope="module")
def sdist(checkout: Path) -> Path:
    python("-m", "build", "--no-isolation", "--sdist", cwd=checkout)
    [made] = (checkout / "dist").glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    python("-m", "build", "--no-isolation", "--wheel", cwd=checkout)
    [made] = (checkout / "dist").glob("*.whl")
    return made


def test_nothing_but_rstream_reaches_site_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == TOPS
    for part in PARTS:
        stem = part.replace(".", "/")
        assert f"{stem}.py" in names or f"{stem}/__init__.py" in names, part
    assert "rstream/py.typed" in names
    assert not [name for name in names if "/tests/" in name or name.endswith(".pyc")]


def test_every_module_of_the_repository_is_in_the_wheel(checkout: Path, wheel: Path) -> None:
    folders = os.walk(checkout / "rstream", followlinks=True)
    wanted = {
        (Path(folder) / name).relative_to(checkout).as_posix()
        for folder, _, names in folders
        for name in names
        if name.endswith(".py")
    }
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())


def test_the_sdist_builds_the_same_wheel_again(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path, filter="data")
    [folder] = [each for each in tmp_path.iterdir() if each.is_dir()]
    python("-m", "build", "--no-isolation", "--wheel", cwd=folder)
    [again] = (folder / "dist").glob("*.whl")
    files = [
        {name for name in zipfile.ZipFile(each).namelist() if not name.split("/")[0].endswith(".dist-info")}
        for each in (wheel, again)
    ]
    assert files[0] == files[1]


def test_an_installed_wheel_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    python("-m", "venv", "--system-site-packages", "--without-pip", str(environment), cwd=tmp_path)
    installed = str(environment / "bin" / "python")
    site = python("-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path, executable=installed)
    before = set(os.listdir(site.strip()))
    python("-m", "pip", "install", "--quiet", "--no-deps", "--target", site.strip(), str(wheel), cwd=tmp_path)
    added = set(os.listdir(site.strip())) - before - {"bin"}
    assert {name for name in added if not name.endswith((".dist-info", "__pycache__"))} == TOPS
    # The libraries that rstream needs come from the environment that runs this test.
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    code = f"""
import importlib, sys
sys.path += {libraries!r}
for part in {PARTS!r}:
    importlib.import_module(part)
import pyspark_rstream, rstream
assert pyspark_rstream.DefaultSource.name() == "rstream"
assert rstream.__file__.startswith({site.strip()!r}), rstream.__file__
from rstream.testing import run
topology = rstream.Topology("installed")
topology.source("words", ["a", "b", "a"]).key_by("word").count("count").sink("out")
print(run(topology)["out"])
"""
    printed = python("-c", code, cwd=tmp_path, executable=installed)
    assert printed.strip() == "[('a', 1), ('b', 1), ('a', 2)]"
