"""Records that other programs push to an ingest source arrive once each, are checked, and slow their sender down."""

from __future__ import annotations

import collections
import datetime as dt
import ipaddress
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rstream import Topology
from rstream.config import LinkConfig, load
from rstream.errors import DataError, RunError
from rstream.operators import sinks, sources
from rstream.operators.ingest import WINDOW
from rstream.runtime.embedded import Embedded
from rstream.runtime.ingest_client import IngestClient, IngestTarget, look
from tests.deadline import wait_until

FIELDS = {"word": str, "n": int}


def counting(source: Any, parallelism: int = 2) -> Topology:
    topology = Topology("pushed")
    rows = topology.source("rows", source, parallelism=parallelism)
    rows.key_by("word", _word).count("count", parallelism=2).sink("out", sinks.Latest())
    return topology


def _word(row: tuple[str, int]) -> str:
    return row[0]


class Running:
    """An embedded host that runs on a thread until the test has seen enough."""

    def __init__(self, topology: Topology, workers: int = 1, **settings: Any) -> None:
        graph = topology.build()
        self.host = Embedded(graph, load(topology=graph.config, flags=settings).config, workers)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.host.run, kwargs={"until": self._stop.is_set}, daemon=True)
        self._thread.start()

    @property
    def target(self) -> IngestTarget:
        target: IngestTarget = self.host.gate.target()
        return target

    def end(self, step: str = "out") -> dict[Any, Any]:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return dict(self.host.results(step))

    def received(self) -> int:
        return sum(task.counters.received for machine in self.host.machines.values() for task in machine.sources)


@contextmanager
def running(topology: Topology, workers: int = 1, **settings: Any) -> Iterator[Running]:
    found = Running(topology, workers, **settings)
    try:
        yield found
    finally:
        found.end()


def rows(partition: int, count: int) -> list[tuple[str, int]]:
    return [(f"word{(n * 7 + partition) % 13}", n) for n in range(count)]


def truth(*parts: list[tuple[str, int]]) -> dict[str, int]:
    return dict(collections.Counter(word for part in parts for word, _ in part))


def send(target: IngestTarget, partition: int, values: list[Any], at_once: int = 100, sender: str = "test") -> int:
    """Send what the source does not have yet; gives how many that were."""
    with IngestClient(target, sender, partition) as client:
        begin = client.covered
        for start in range(begin, len(values), at_once):
            client.send(values[start : start + at_once])
        client.finish()
        return len(values) - begin


def test_records_of_several_senders_are_counted_once_each() -> None:
    parts = [rows(partition, 3000) for partition in range(4)]
    with running(counting(sources.Ingest(FIELDS), parallelism=2), workers=2) as found:
        threads = [threading.Thread(target=send, args=(found.target, p, part)) for p, part in enumerate(parts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        received = [task.counters.received for machine in found.host.machines.values() for task in machine.sources]
        assert found.end() == truth(*parts)
    assert received == [6000, 6000]  # neighbouring partitions go to different tasks


def test_what_is_sent_again_counts_once() -> None:
    part = rows(0, 1000)
    with running(counting(sources.Ingest(FIELDS))) as found:
        with IngestClient(found.target, "test") as killed:
            killed.send(part[:600])
            wait_until(lambda: killed.poll(0.01) == 600, "the first records to be covered")
        assert send(found.target, 0, part) == 400
        assert send(found.target, 0, part) == 0
        assert send(found.target, 0, part, sender="another") == 1000
        assert found.end() == truth(part, part)


def test_a_later_epoch_begins_at_its_first_record_and_earlier_ones_are_over() -> None:
    part = rows(0, 50)
    with running(counting(sources.Ingest(FIELDS))) as found:
        for epoch in (3, 4, 4, 3, 9):
            with IngestClient(found.target, "test", epoch=epoch) as client:
                if not client.is_over and client.covered < len(part):
                    client.send(part[client.covered :])
                    client.finish()
        assert found.end() == truth(part, part, part)


def test_bad_records_are_refused_with_the_reason_and_the_others_taken() -> None:
    values: list[Any] = [("a", 1), ("b", "2"), "c", ("d", 4, 4), ("a", None), ("a", 6)]
    with running(counting(sources.Ingest(FIELDS))) as found:
        with IngestClient(found.target, "test") as client:
            client.send(values)
            client.finish()
            wait_until(lambda: client.poll(0.01) and len(client.refused) == 4, "the refusals")
        status = found.host.status()
        assert found.end() == {"a": 2}
    assert client.refused == [
        (1, "column 'n' wants int, got '2'"),
        (2, "a row of 2 columns was wanted, got 'c'"),
        (3, "a row of 2 columns was wanted, got 3: ('d', 4, 4)"),
        (4, "column 'n' wants int, got None"),
    ]
    assert next(each["failed"] for each in status["operators"] if each["name"] == "rows") == 4


def test_a_sender_is_let_in_with_the_token_alone(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with running(counting(sources.Ingest(FIELDS)), ingest={"token_file": str(tmp_path / "token")}) as found:
        assert found.target.token == "secret"
        wrong = IngestTarget(found.target.workers, "guess")
        with pytest.raises(DataError, match="refuses this sender: wrong token"):
            look(wrong)
        with pytest.raises(DataError, match="wrong token"):
            IngestClient(wrong, "test")
        assert look(found.target).columns == [("word", "str"), ("n", "int")]


def test_with_certificates_senders_must_speak_tls(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    part = rows(0, 100)
    with running(counting(sources.Ingest(FIELDS)), links=files) as found:
        assert send(found.target, 0, part) == 100
        ca_alone = IngestTarget(found.target.workers, found.target.token, tls=LinkConfig(tls_ca=files["tls_ca"]))
        plain = IngestTarget(found.target.workers, found.target.token)
        for without in (ca_alone, plain):
            with pytest.raises(DataError, match="no worker of a topology answers"):
                look(without)
        assert found.end() == truth(part)


def certificate(folder: Path) -> dict[str, str]:
    """A key and its own certificate for this machine, as files."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    day = dt.timedelta(days=1)
    made = x509.CertificateBuilder(name, name, secret.public_key(), x509.random_serial_number())
    made = made.not_valid_before(dt.datetime.now(dt.UTC) - day).not_valid_after(dt.datetime.now(dt.UTC) + day)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = made.add_extension(address, critical=False).sign(secret, hashes.SHA256())
    cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(secret.private_bytes(serialization.Encoding.PEM, pem, plain))
    return {"tls_key": str(key), "tls_cert": str(cert), "tls_ca": str(cert)}


def test_nobody_at_the_target_is_said_so() -> None:
    with pytest.raises(DataError, match=r"no worker of a topology answers at 127\.0\.0\.1:9"):
        look(IngestTarget(("127.0.0.1:9",), "token"))


def test_a_topology_without_such_a_source_says_so() -> None:
    topology = counting(sources.Ingest(FIELDS))
    topology.source("more", sources.Ingest()).sink("rest")
    with running(topology) as found:
        with pytest.raises(DataError, match="several ingest sources, name one of them: rows, more"):
            look(found.target)
        with pytest.raises(DataError, match="has no ingest source 'count'; it has: rows, more"):
            look(IngestTarget(found.target.workers, found.target.token, "count"))
        assert look(IngestTarget(found.target.workers, found.target.token, "more")).columns is None


def test_a_topology_that_reads_nothing_stops_its_sender_until_it_does() -> None:
    part = rows(0, 5 * WINDOW)
    with running(counting(sources.Ingest(FIELDS))) as found, IngestClient(found.target, "test") as client:
        [machine] = found.host.machines.values()
        machine.pause(True)

        def send_all() -> None:
            for start in range(0, len(part), 500):
                client.send(part[start : start + 500])
            client.finish()

        thread = threading.Thread(target=send_all, daemon=True)
        thread.start()
        wait_until(lambda: sum(task.counters.received for task in machine.sources) >= WINDOW, "the window to fill")
        assert thread.is_alive()
        assert sum(task.counters.received for task in machine.sources) < WINDOW + 500
        machine.pause(False)
        thread.join(60)
        assert client.waited_s > 0.0
        assert found.end() == truth(part)


def test_a_sender_that_leaves_a_gap_is_refused() -> None:
    with running(counting(sources.Ingest(FIELDS))) as found, IngestClient(found.target, "test") as client:
        client._machine.next = 5
        client.send([("a", 1)])
        with pytest.raises(RunError, match="offset 5 came, 0 was to come next"):
            client.finish()
