"""Sources: every item once, from any offset on; and what a wrong one is told."""

from __future__ import annotations

import pathlib
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rstream import Topology
from rstream.errors import DataError, OperatorError, TopologyError
from rstream.operators.sources import Files, FromIterable, Phases, Rate, TcpLines
from rstream.testing import check_source, run


def read_all(source: Any, parallelism: int = 1) -> list[Any]:
    """Everything, split by split."""
    values: list[Any] = []
    for split in source.splits(parallelism):
        reader = source.reader(split, None)
        while (some := reader.read(3)) is not None:
            values += some
        reader.close()
    return values


# Iterables.


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7])
def test_an_iterable_is_dealt_out_over_the_tasks(parallelism: int) -> None:
    assert sorted(read_all(FromIterable(range(20)), parallelism)) == list(range(20))
    assert sorted(read_all(FromIterable(iter("abc")), parallelism)) == ["a", "b", "c"]


# Rates.


def test_a_rate_gives_what_is_due_and_no_more() -> None:
    reader = Rate(lambda n: n, per_s=10.0).reader("0/1", None)
    came: list[int] = []
    for tenth in range(101):
        reader.now_s = 500.0 + tenth / 10
        came += reader.read(1000) or []
        assert len(came) == tenth
    assert came == list(range(100))


def test_a_rate_that_was_held_up_catches_up_within_the_limit_of_a_read() -> None:
    reader = Rate(lambda n: n, per_s=100.0).reader("0/1", None)
    assert reader.read(10) == []
    reader.now_s = 1.0
    assert [len(reader.read(30) or []) for _ in range(5)] == [30, 30, 30, 10, 0]


def test_the_tasks_of_a_rate_share_its_numbers() -> None:
    came = []
    for split in Rate(lambda n: n, per_s=1000.0, limit=100).splits(3):
        reader = Rate(lambda n: n, per_s=1000.0, limit=100).reader(split, None)
        reader.read(1)
        reader.now_s = 0.05
        some = reader.read(1000) or []
        assert len(some) == 16  # a third of 1000 a second for 50 ms
        reader.now_s = 10.0
        came += some + (reader.read(1000) or [])
        assert reader.read(1000) is None
    assert sorted(came) == list(range(100))


def test_a_rate_in_virtual_time_takes_as_long_as_it_should() -> None:
    topology = Topology("rate")
    topology.source("ticks", Rate(lambda n: n, per_s=50.0, limit=500), parallelism=2).sink("out")
    assert sorted(run(topology)["out"]) == list(range(500))


@pytest.mark.parametrize("per_s", [0, -1.0, float("nan")])
def test_a_rate_must_be_above_0(per_s: float) -> None:
    with pytest.raises(TopologyError, match="a rate must be above 0 tuples per second"):
        Rate(str, per_s)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_phases_end_with_the_last_number_however_many_tasks_share_them(parts: int) -> None:
    source = Phases(lambda n: n, [(1.0, 4.0), (1.0, 3.0)])
    came: list[int] = []
    for split in source.splits(parts):
        reader = source.reader(split, None)
        for at_s in (50.0, 51.0, 52.0):
            reader.now_s = at_s
            came += reader.read(100) or []
        assert reader.read(100) is None, f"task {split} has more to give, and will never give it"
    assert sorted(came) == list(range(7))


# Files.


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("abé \n\r€"), max_size=60), st.integers(1, 30))
def test_every_line_comes_once_wherever_the_file_is_cut(tmp_path: pathlib.Path, text: str, split_bytes: int) -> None:
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    wanted = [line.rstrip("\r\n") for line in re.findall(r"[^\n]*\n|[^\n]+\Z", text)]
    assert read_all(Files(path, split_bytes=split_bytes)) == wanted


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\n\n\nb\n\n", ["a", "", "", "b", ""]),
        ("straße\n€".encode(), ["straße", "€"]),
    ],
)
def test_a_line_ends_with_a_newline_and_the_last_may_lack_it(
    tmp_path: pathlib.Path, content: bytes, lines: list[str]
) -> None:
    path = tmp_path / "text"
    path.write_bytes(content)
    for split_bytes in (1, 2, 3, 1000):
        assert read_all(Files(path, split_bytes=split_bytes)) == lines


def test_files_keep_the_promises_of_a_source(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" * (n % 3) for n in range(30)))
    (tmp_path / "b:1.txt").write_text("last\nno newline")
    (tmp_path / "empty.txt").write_text("")
    for split_bytes in (5, 50, 1 << 20):
        check_source(lambda size=split_bytes: Files(tmp_path / "*.txt", split_bytes=size))  # type: ignore[misc]


def test_several_paths_and_globs_are_read_in_order(tmp_path: pathlib.Path) -> None:
    for name in ("b.txt", "a.txt", "c.log"):
        (tmp_path / name).write_text(f"{name}\n")
    assert read_all(Files(tmp_path / "c.log", tmp_path / "*.txt")) == ["c.log", "a.txt", "b.txt"]


def test_a_topology_reads_files_on_any_number_of_tasks_and_workers(tmp_path: pathlib.Path) -> None:
    lines = [f"line {n} " + "x" * (n % 50) for n in range(1000)]
    (tmp_path / "text").write_text("\n".join(lines))
    for parallelism, workers in ((1, 1), (3, 2), (5, 4)):
        topology = Topology("files")
        topology.source("lines", Files(tmp_path / "text", split_bytes=777), parallelism=parallelism).sink("out")
        assert sorted(run(topology, workers=workers)["out"]) == sorted(lines)


def test_a_latin_1_file_is_read_with_its_encoding_and_refused_with_another(tmp_path: pathlib.Path) -> None:
    (tmp_path / "text").write_bytes("straße\n".encode("latin-1"))
    assert read_all(Files(tmp_path / "text", encoding="latin-1")) == ["straße"]
    topology = Topology("bad")
    topology.source("lines", Files(tmp_path / "text")).sink("out")
    with pytest.raises(OperatorError, match="step 'lines', task 0: UnicodeDecodeError"):
        run(topology)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Files("no/such/file").splits(1), "no file 'no/such/file' to read lines from; check the path"),
        (lambda: Files("no/such/*.txt").splits(1), r"no file matches 'no/such/\*\.txt'; check the path"),
        (lambda: Files("/").splits(1), "no file '/' to read lines from"),
        (lambda: Files(), "no file to read lines from; name a path"),
        (lambda: Files("x", split_bytes=0), "split_bytes must be at least 1, got 0"),
        (lambda: Files("x", encoding="utf-16"), "lines of utf-16 text cannot be cut by bytes"),
    ],
)
def test_wrong_files_are_told_what_to_do(make: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


# TCP.


@contextmanager
def server(*pieces: bytes) -> Iterator[tuple[str, int]]:
    """Sends these bytes to every one who connects, in pieces, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for piece in pieces:
                        connection.sendall(piece)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_lines_from_a_server_come_in_order_until_it_closes() -> None:
    with server(b"a\r\nb\n\nha", b"lf", b"\n", b"no newline") as (host, port):
        check_source(lambda: TcpLines(host, port), patience=10_000_000)
        topology = Topology("tcp")
        topology.source("lines", TcpLines(host, port), parallelism=2).sink("out")
        assert run(topology, workers=2)["out"] == ["a", "b", "", "half", "no newline"]


def test_more_lines_than_a_read_may_give_wait_for_the_next() -> None:
    with server(b"".join(b"%d\n" % n for n in range(5000))) as (host, port):
        reader = TcpLines(host, port).reader("x", None)
        came: list[str] = []
        while (some := reader.read(7)) is not None:
            assert len(some) <= 7
            came += some
        assert came == [str(n) for n in range(5000)]
        assert reader.offset == 5000
        reader.close()


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rstream.operators.sources._TcpReader.line_bytes_max", 1000)
    with server(b"x" * 5000) as (host, port):
        reader = TcpLines(host, port).reader("x", None)
        with pytest.raises(DataError, match=rf"a line from {host}:{port} is longer than 1000 bytes"):
            list(iter(lambda: reader.read(10), None))
        reader.close()


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        host, port = free.getsockname()
    topology = Topology("tcp")
    topology.source("lines", TcpLines(host, port)).sink("out")
    with pytest.raises(OperatorError, match=f"step 'lines', task 0: cannot read lines from {host}:{port}: .*listening"):
        run(topology)
    assert not TcpLines.replayable
