"""DNS, PSPS's third application: four steps in a row that analyse flows of DNS traffic and classify them.

rstream run topologies/dns.py -o store=flows/
"""

from __future__ import annotations

from typing import Any

from rstream import Topology
from rstream.operators import sinks
from rstream.topologies import inputs

FIELDS = ("source_ip", "port", "bytes_per_s", "class")


def build(table: str = "", store: str = "", parallelism: int = 3, flows_per_s: float = 1_000) -> Topology:
    """Every flow with its rate and its class, written to the folder `store`, or collected."""
    topology = Topology("dns")
    source = inputs.rows(table, inputs.FLOWS, inputs.flow, flows_per_s)
    flows = topology.source("flows", source, parallelism=parallelism)
    rates = flows.map("analyse", with_rate, parallelism=parallelism)
    classified = rates.map("classify", classify, parallelism=parallelism, fields=FIELDS)
    classified.sink("store", sinks.Parquet(store, FIELDS) if store else None)
    return topology


def with_rate(flow: Any) -> tuple[Any, ...]:
    """(source, port, whole bytes a second, bytes received for each sent): what the class depends on."""
    source, port, duration_s, sent, received, _, _ = flow
    rate = int((sent + received) / duration_s) if duration_s > 0 else 0
    return source, port, rate, received / sent if sent > 0 else 0.0


def classify(flow: Any) -> tuple[Any, ...]:
    """Plain DNS by its port; over HTTPS, browsing by its many bytes received; tunnels by their few."""
    source, port, rate, ratio = flow
    if port == 53:
        kind = "dns"
    elif port != 443:
        kind = "other"
    else:
        kind = "browsing" if ratio >= 2 else "tunnel" if ratio < 1 else "doh"
    return source, port, rate, kind
