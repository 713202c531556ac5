"""A user's topology for the lab: a small YAML file, or the name of a built-in one.

name: shop
nodes: 14                # the cluster: nodes of equal machines
cores: 2
operators:               # from source to sink
  - {name: read, service_ms: 0.5, parallelism: 2}
  - {name: count, service_ms: 2, parallelism: 4, keyed: true, state_mb: 50}
edges:                   # left out: a row in the order above
  - {from: read, to: count, selectivity: 1.0}
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rstream.errors import TopologyError
from rstream.lab.rows import es, me, psps, ra, sl
from rstream.lab.spec import ClusterSpec, EdgeSpec, OperatorSpec, TopologySpec

QUEUE_LIMIT = 10_000.0


class _Operator(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    name: str
    service_ms: float = Field(gt=0)
    parallelism: int = Field(default=1, ge=1)
    parallelism_max: int = Field(default=100, ge=1)
    pool: int = Field(default=0, ge=0)
    keyed: bool = False
    state_mb: float = Field(default=0.0, ge=0)
    cpu_share: float = Field(default=1.0, ge=0)
    mem: float = Field(default=0.0, ge=0)
    skew: float = Field(default=0.0, ge=0)


class _Edge(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, populate_by_name=True)
    source: str = Field(alias="from")
    target: str = Field(alias="to")
    selectivity: float = Field(default=1.0, ge=0)


class _Description(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    name: str
    nodes: int = Field(default=14, ge=1, le=10_000)
    cores: float = Field(default=2.0, gt=0)
    processes: int = Field(default=2, ge=1)
    tasks_per_process: int = Field(default=2, ge=1)
    workers: int | None = Field(default=None, ge=1)
    operators: list[_Operator] = Field(min_length=1)
    edges: list[_Edge] | None = None


BUILT_IN: dict[str, Callable[[], tuple[ClusterSpec, TopologySpec]]] = {
    "wordcount": lambda: (ra.CLUSTER, ra.wordcount()),
    "debs2024": lambda: (ra.CLUSTER, ra.debs2024()),
    "commcount": lambda: (es.CLUSTER, es.commcount()),
    "top_n": lambda: (es.CLUSTER, es.top_n()),
    "top_n_wide": lambda: (sl.CLUSTER, sl.top_n("top_n 1")),
    "twitter": lambda: (psps.CLUSTER, psps.TWITTER.topology(1, pool=True)),
    "twitter_complex": lambda: (psps.CLUSTER, psps.COMPLEX.topology(1, pool=True)),
    "dns": lambda: (psps.CLUSTER, psps.DNS.topology(1, pool=True)),
    "wordcount_kafka": lambda: (me.CLUSTER, me.wordcount()),
}


def topology(name_or_path: str) -> tuple[ClusterSpec, TopologySpec]:
    """The cluster and topology of that name or file."""
    if name_or_path in BUILT_IN:
        return BUILT_IN[name_or_path]()
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return _read(path)
    near = get_close_matches(name_or_path, BUILT_IN, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise TopologyError(
        f"--topology {name_or_path!r}{hint}: neither a file nor a built-in topology; there are {', '.join(BUILT_IN)}"
    )


def _read(path: Path) -> tuple[ClusterSpec, TopologySpec]:
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TopologyError(f"topology {path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise TopologyError(f"topology {path}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise TopologyError(f"topology {path}: needs keys such as name and operators, got {type(data).__name__}")
    try:
        described = _Description.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise TopologyError(f"topology {path}: {where}: {first['msg']}, got {first['input']!r}") from None
    return _cluster(described), _topology(described)


def _cluster(described: _Description) -> ClusterSpec:
    return ClusterSpec(
        described.nodes,
        processes=described.processes,
        tasks_per_process=described.tasks_per_process,
        cores=described.cores,
    )


def _topology(described: _Description) -> TopologySpec:
    operators = tuple(
        OperatorSpec(
            op.name,
            op.service_ms / 1e3,
            op.parallelism,
            stateful=op.keyed or op.state_mb > 0,
            keyed=op.keyed,
            cpu_share=op.cpu_share,
            mem=op.mem,
            pool=op.pool,
            parallelism_max=op.parallelism_max,
            state_bytes=op.state_mb * 1e6,
            skew=op.skew,
        )
        for op in described.operators
    )
    names = [op.name for op in operators]
    keyed = {op.name for op in operators if op.keyed}
    given = described.edges
    if given is None:
        given = [_Edge.model_validate({"from": a, "to": b}) for a, b in itertools.pairwise(names)]
    edges = tuple(
        EdgeSpec(edge.source, edge.target, edge.selectivity, "fields" if edge.target in keyed else "shuffle")
        for edge in given
    )
    return TopologySpec(described.name, operators, edges, workers=described.workers, queue_limit=QUEUE_LIMIT)
