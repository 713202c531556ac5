"""Wrong requests are refused in one line, with exit status 2, before Spark is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rstream.cli import main as cli


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run(["data", *arguments]) == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith("rstream: ")
    assert "\n" not in line
    return line


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "a.csv"
    path.write_text("1,2,3,pv,1511600000\n")
    return str(path)


def test_an_unknown_set(lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'tianchi'?" in refusal(["ingest", "tianchii", lines, str(tmp_path / "t")], capsys)


def test_a_source_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file" in refusal(["ingest", "tianchi", str(tmp_path / "no"), str(tmp_path / "t")], capsys)


def test_a_target_that_is_a_file(lines: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is a file" in refusal(["ingest", "tianchi", lines, lines], capsys)
    assert "is a file and not a directory" in refusal(["synth", "doh", f"{lines}/below", "--rows", "5"], capsys)


def test_a_target_that_cannot_be_written(lines: str, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["ingest", "tianchi", lines, "/proc/rstream/t"], ["synth", "doh", "/proc/t", "--rows", "5"]):
        assert "cannot be written, /proc: " in refusal(verb, capsys)


def test_a_target_inside_the_source(lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "within each other" in refusal(["ingest", "tianchi", str(tmp_path), str(tmp_path / "t")], capsys)


def test_a_master_that_is_none(lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(["ingest", "tianchi", lines, str(tmp_path / "t"), "--master", "cloud"], capsys)
    assert "--master 'cloud': wanted local[N]" in line


def test_a_setting_that_is_none(lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(["ingest", "tianchi", lines, str(tmp_path / "t"), "--conf", "memory"], capsys)
    assert "wanted spark.some.key=value" in line


@pytest.mark.parametrize(
    "size", [["--rows", "0"], ["--rows", "9", "--partitions", "0"], ["--rows", "9", "--seed", "9" * 30]]
)
def test_a_size_that_cannot_be(size: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert " must " in refusal(["synth", "doh", str(tmp_path / "t"), *size], capsys)


def test_no_spark_installed(
    lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    line = refusal(["ingest", "tianchi", lines, str(tmp_path / "t")], capsys)
    assert "pip install 'rstream-ray[spark]'" in line
