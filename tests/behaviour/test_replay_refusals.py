"""A replay that cannot be right is refused in one line, with status 2, before Spark is started and anything is sent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rstream.cli.main import run
from rstream.operators import sources
from tests.behaviour.test_ingest import FIELDS, Running, counting, running


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "token").write_text("secret")
    with running(counting(sources.Ingest(FIELDS)), ingest={"token_file": str(tmp_path / "token")}) as found:
        yield found


def parquet(path: Path, **columns: Any) -> str:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return str(path)


def test_each_wrong_request_is_one_line_and_nothing_is_sent(
    host: Running, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good = parquet(tmp_path / "good.parquet", word=["a"], n=[1])
    other = parquet(tmp_path / "other.parquet", word=["a"], n=["one"])
    empty = parquet(tmp_path / "empty.parquet", word=pyarrow.array([], pyarrow.string()), n=pyarrow.array([], "int64"))
    (tmp_path / "guess").write_text("guess")
    endpoint, token = host.target.workers[0], ("--token-file", str(tmp_path / "token"))
    cases = [
        ((good, "--to", "127.0.0.1:9", *token), "no worker of a topology answers at 127.0.0.1:9"),
        ((good, "--to", endpoint, "--token-file", str(tmp_path / "guess")), "refuses this sender: wrong token"),
        ((good, "--to", endpoint), "a worker takes records with a token only"),
        ((good, "--to", endpoint, "--token-file", "nowhere"), "cannot read the token of senders from nowhere"),
        ((good, "--to", "pushed", *token), "--token-file and --tls-* are for HOST:PORT"),
        ((good, "--to", ":1"), "wanted the name of a topology, or HOST:PORT"),
        ((other, "--to", endpoint, *token), "column 'n' is str (string), the topology wants 'n': int"),
        ((empty, "--to", endpoint, *token), "hold no rows, so there is nothing to replay"),
        ((good, "--to", endpoint, *token, "--time-column", "evnt_time"), "has no column 'evnt_time' of event time"),
        (("nowhere", "--to", endpoint, *token), "nowhere: no such file or directory"),
        ((good, "--to", endpoint, *token, "--rate", "0"), "the last rate is 0 records/s"),
        ((good, "--to", endpoint, *token, "--rate", "5@0s,2@x"), "wanted a number of records/s"),
        ((good, "--to", endpoint, *token, "--rate", "5", "--speed", "2"), "--rate and --speed exclude each other"),
        ((good, "--to", endpoint, *token, "--speed", "-1"), "--speed -1: wanted a number above 0"),
        ((good, "--to", endpoint, *token, "--step", "count"), "has no ingest source 'count'; it has: rows"),
    ]
    for arguments, wanted in cases:
        assert run(["data", "replay", *arguments]) == 2, arguments
        [line] = [each for each in capfd.readouterr().err.splitlines() if each.startswith("rstream: ")]
        assert wanted in line, line
    assert host.received() == 0


def test_a_topology_of_a_cluster_that_does_not_answer_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{taken.getsockname()[1]}"
    rows = parquet(tmp_path / "good.parquet", word=["a"], n=[1])
    # A process of its own: this one may be connected to the cluster that the tests share.
    done = subprocess.run(
        [sys.executable, "-m", "rstream", "data", "replay", rows, "--to", "pushed", "--address", closed],
        env={name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        capture_output=True,
        text=True,
    )
    [line] = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert f"no Ray cluster answers at {closed}" in line
