"""The command line's frame: one clear line and an exit status for every outcome."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from rstream.cli import main as cli


def test_an_unknown_verb_is_one_line_and_exit_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["no-such-verb"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("rstream: No such command")
    assert len(captured.err.strip().splitlines()) == 1


def test_help_names_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    assert "rstream" in capsys.readouterr().out


def test_a_local_run_loads_nothing_that_only_clusters_policies_or_tables_need(tmp_path: Path) -> None:
    target = tmp_path / "double.py"
    target.write_text(
        "from rstream import Topology\n"
        "def build():\n"
        "    topology = Topology('double')\n"
        "    topology.source('numbers', [1, 2]).map('double', lambda n: 2 * n).sink('out')\n"
        "    return topology\n"
    )
    program = (
        "import sys; from rstream.cli.main import run; status = run(sys.argv[1:]);"
        "print(status, sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    arguments = ["run", str(target), "--local", "--json"]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    status, _, loaded = done.stderr.partition(" ")
    assert status == "0"
    heavy = {"ray", "grpc", "numpy", "scipy", "pyarrow", "pyspark", "rich", "yaml", "sqlite3", "multiprocessing"}
    assert heavy & set(ast.literal_eval(loaded)) == set()


def test_bench_names_the_benchmarks_that_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["bench", "no-such-benchmark"]) == 2
    assert "throughput" in capfd.readouterr().err
