"""What users install: an sdist and a wheel with `rstream` and Spark's way to it, which work without the repository."""

from __future__ import annotations

import email
import importlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from rstream import target

ROOT = Path(__file__).resolve().parents[2]
PARTS = [
    "rstream.operators.sources",
    "rstream.schedulers",
    "rstream.state.keyed",
    "rstream.topologies",
    "rstream.core.task",
]

TOPS = {"rstream", "pyspark_rstream.py"}

BUILD = """
from setuptools import build_meta
print(build_meta.build_sdist("dist"), build_meta.build_wheel("dist"), sep="\\n")
"""


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
def built(checkout: Path) -> tuple[Path, Path]:
    """The sdist and the wheel, as a build in this environment makes them."""
    sdist, wheel = python("-c", BUILD, cwd=checkout).splitlines()[-2:]
    return checkout / "dist" / sdist, checkout / "dist" / wheel


@pytest.fixture(scope="module")
def sdist(built: tuple[Path, Path]) -> Path:
    return built[0]


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, Path]) -> Path:
    return built[1]


def test_nothing_but_rstream_reaches_site_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == TOPS
    for part in PARTS:
        stem = part.replace(".", "/")
        assert f"{stem}.py" in names or f"{stem}/__init__.py" in names, part
    assert "rstream/py.typed" in names
    assert not [name for name in names if "/tests/" in name or name.endswith(".pyc")]


def test_every_module_of_the_repository_is_in_the_wheel_and_the_sdist(checkout: Path, wheel: Path, sdist: Path) -> None:
    folders = os.walk(checkout / "rstream", followlinks=True)
    wanted = {
        (Path(folder) / name).relative_to(checkout).as_posix()
        for folder, _, names in folders
        for name in names
        if name.endswith(".py")
    }
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as packed:
        sources = {name.partition("/")[2] for name in packed.getnames()}
    # The sdist follows the links of the package's folder, so that it builds where links cannot be made.
    assert wanted <= sources
    assert {"LICENSE", "README.md", "pyproject.toml", "rstream/py.typed", "pyspark_rstream.py"} <= sources


def test_what_a_user_installs_says_so_about_itself(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    [folder] = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    metadata = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
    assert metadata["Name"] == "rstream-ray"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra", [])) == {"spark", "bench", "dev"}
    assert "rstream = rstream.cli.main:main" in archive.read(f"{folder}/entry_points.txt").decode()
    assert any(name.startswith(folder) and name.endswith("LICENSE") for name in archive.namelist())
    assert "rstream/topologies/data/river.txt" in archive.namelist()


@pytest.mark.parametrize("file", ["topologies/wordcount.py", "rstream/topologies/wordcount.py"])
def test_a_ready_topology_is_loaded_under_its_name_in_the_package(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    loaded = target.load(file)
    assert loaded.module.__name__ == "rstream.topologies.wordcount"
    assert loaded.module is importlib.import_module("rstream.topologies.wordcount")
    assert loaded.folder == "", "workers have it installed"


@pytest.mark.long
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


@pytest.mark.long
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
