"""`rstream.run` from a Python program: what it tells the program beside the results."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest

from rstream import END, Bolt, Spout, Topology, run
from rstream.runtime.logs import log_here


class Once(Spout):
    """One tuple, and no way back to it."""

    def next_tuple(self, out: Any) -> object:
        out.emit(1)
        return END


class Murmur(Bolt):
    """Says something that only those who look for it want to read."""

    def open(self, ctx: Any) -> None:
        self.logger = ctx.logger

    def process(self, value: Any, out: Any) -> None:
        self.logger.debug("murmured %s", value)


def leaky() -> Topology:
    topology = Topology("leaky")
    topology.source("once", Once()).sink("told", abs)
    return topology


def test_what_a_crash_may_do_is_a_warning_at_the_line_that_runs_it() -> None:
    with pytest.warns(UserWarning, match="step") as caught:
        run(leaky(), local=True)
    assert [str(each.message) for each in caught] == [
        "step 'once': this source cannot be read again, so tuples on their way are lost in a crash",
        "step 'told': this sink is at-least-once, after a crash it may see a tuple a second time",
    ]
    assert {each.filename for each in caught} == {__file__}


def test_who_takes_the_notes_gets_no_warning() -> None:
    notes: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(leaky(), local=True, on_note=notes.append)
    assert len(notes) == 2


def test_a_topology_that_a_crash_does_not_change_has_no_warning() -> None:
    topology = Topology("exact")
    topology.source("n", [1]).sink("out")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(topology, local=True)


@pytest.mark.parametrize("verbose", [False, True])
def test_debug_lines_of_steps_are_shown_to_who_asked_for_them(
    verbose: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if verbose:
        monkeypatch.setenv("RSTREAM_VERBOSE", "1")
    else:
        monkeypatch.delenv("RSTREAM_VERBOSE", raising=False)
    root = logging.getLogger()
    level = root.level
    monkeypatch.setattr(root, "handlers", [])
    try:
        log_here()
        topology = Topology("quiet")
        topology.source("n", [1]).sink("murmur", Murmur())
        run(topology, local=True, on_note=lambda text: None)
    finally:
        root.setLevel(level)
    assert ("DEBUG murmur#0: murmured 1" in capsys.readouterr().err) is verbose
