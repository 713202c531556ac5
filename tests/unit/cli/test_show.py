"""What a run shows: tables as wide as the terminal, plain lines where there is none, standard output untouched."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest
from rich.console import Console

from rstream import Topology, run
from rstream.cli import main as cli
from rstream.cli.show import LiveStatus, render


@pytest.fixture(scope="module")
def status() -> dict[str, Any]:
    topology = Topology("shown")
    topology.source("n", [1, 2, 3]).map("[bold]", abs, parallelism=2).sink("out")
    return dict(run(topology, local=True, workers=2).status)


def text_of(status: dict[str, Any], width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(render(status))
    return out.getvalue()


def test_the_table_tells_operators_rates_latency_queues_and_tiers(status: dict[str, Any]) -> None:
    text = text_of(status)
    assert "shown  FINISHED  policy static  workers 2" in text
    assert "emitted 3  acked 3  failed 0  latency p50" in text
    for column in ("operator", "parallelism", "tuples/s", "queue", "thread tier", "process tier", "node tier"):
        assert column in text
    assert re.search(r"n -> \[bold\] +local-or-shuffle", text)


def test_the_table_fits_into_a_narrow_terminal(status: dict[str, Any]) -> None:
    assert max(len(line) for line in text_of(status, 80).splitlines()) <= 80


def test_without_a_terminal_only_the_last_table_is_printed(
    status: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with LiveStatus() as live:
        for _ in range(3):
            live.show(status)
        sys.stdout.write("result\n")
    captured = capsys.readouterr()
    assert captured.out == "result\n"
    assert captured.err.count("FINISHED") == 1
    assert captured.err.endswith("\n")


def test_an_error_of_ours_that_nobody_expected_is_one_line_with_the_way_to_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RSTREAM_VERBOSE", raising=False)
    monkeypatch.setattr(cli, "make_app", lambda: 1 / 0)
    assert cli.run([]) == 1
    assert capsys.readouterr().err == (
        "rstream: internal error: ZeroDivisionError: division by zero; "
        "run it with -v for the traceback: rstream -v ...\n"
    )
