"""Configuration: one model, one loader, five layers.

Defaults < topology < file < environment (`RSTREAM_*`) < flags. A key is written with dots (`coordinator.store`), in the
environment with two underscores (`RSTREAM_COORDINATOR__STORE`). An unknown key is refused and the nearest known one
named. `Settings.origins` says where each value came from.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pydantic
from pydantic import Field

from rstream.errors import ConfigError

ENVIRONMENT_PREFIX = "RSTREAM_"
NOT_SETTINGS = frozenset({"RSTREAM_VERBOSE"})
"""Variables with our prefix that are no settings."""


class _Section(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class BatchConfig(_Section):
    """How tuples travel."""

    max_tuples: int = Field(1024, ge=1, le=1_000_000, description="Largest batch that a step takes or a source reads.")
    window: int = Field(
        8192, ge=1, le=10_000_000, description="Tuples that a receiver may be behind before its sender waits."
    )
    window_bytes: int = Field(
        16 << 20, ge=1024, description="The same in bytes, for large tuples; one batch may always be on its way."
    )


class CoordinatorConfig(_Section):
    """The one coordinator of a cluster."""

    store: str = Field(
        "ray", description="Where its journal is kept: `ray` (Ray's own key-value store) or a pyarrow.fs URI."
    )
    orphan_timeout_s: float = Field(
        60.0, gt=0, description="A worker ends itself when no coordinator has claimed it for this long."
    )


class BackupConfig(_Section):
    """Snapshots of the tasks' state, held by other workers."""

    interval_s: float = Field(5.0, gt=0, description="How often each task's state is backed up on other workers.")
    load_max: float = Field(
        0.8,
        gt=0,
        description="From this load of its node on (CPU time of the node's workers over its CPUs) a task is backed up "
        "six times less often.",
    )
    retained_bytes: int = Field(
        64 << 20,
        ge=1 << 16,
        description="Output that a sender keeps for recovery, per channel: at half of it its receiver is backed up "
        "early, at all of it the sender waits.",
    )


class ControlConfig(_Section):
    """The controller: how often a topology's policy is asked, and within what limits."""

    interval_s: float | None = Field(
        None, gt=0, description="How often the policy is asked, and its window; by default as the policy says."
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="Parameters of the policy, over its defaults: `{trigger: 0.1}`."
    )
    dry_run: bool = Field(False, description="Decide and explain, but change nothing.")
    cooldown_s: float = Field(0.0, ge=0, description="Least time between two plans that change the topology.")
    step_max: int | None = Field(None, ge=1, description="Most instances of a step that one plan adds or removes.")
    parallelism_min: dict[str, int] = Field(default_factory=dict, description="Least instances, by step.")
    parallelism_max: dict[str, int] = Field(default_factory=dict, description="Most instances, by step.")
    nodes_max: int | None = Field(None, ge=1, description="Most nodes in use at a time.")
    hysteresis: float = Field(
        0.0, ge=0, lt=1, description="Relative change of a step's size below which it is left alone."
    )
    veto: str | None = Field(
        None, description="A function `module:name` of the view, plan and moves; a text that it returns refuses a plan."
    )
    execute: Literal["live", "restart", "restart-drop"] | None = Field(
        None, description="How plans are carried out; by default as the policy says, which is live for all but dabs."
    )
    restart_uri: str | None = Field(
        None,
        description="Where a restart keeps the state in between, by default a folder for temporary files; on several "
        "machines a place that all of them reach.",
    )
    scale: Literal["bolts", "all"] = Field(
        "bolts", description="Which steps policies may resize: bolts alone, or sources and sinks too."
    )
    slots_per_node: int | None = Field(
        None, ge=1, description="Worker slots of each node; by default its Ray resource rstream_slot, or 4 a CPU."
    )
    tasks_per_slot: int = Field(4, ge=1, description="Most tasks that policies put into one worker.")
    baseline_cpu: float = Field(0.0, ge=0, lt=1, description="CPU load of an idle node, added to what is measured.")
    baseline_mem: float = Field(0.0, ge=0, lt=1, description="Memory load of an idle node.")
    bandwidth_bytes_s: float = Field(125e6, gt=0, description="Bandwidth of the network between nodes.")
    decisions_max: int = Field(1000, ge=1, description="How many decisions are kept for `rstream explain`.")


class StateConfig(_Section):
    """Where the state of tasks is kept for recovery."""

    backend: Literal["upstream", "checkpoint"] = Field(
        "upstream",
        description="`upstream`: each task's snapshots on other workers, and only lost tasks go back; `checkpoint`: "
        "all tasks' whole states at a barrier in `state.store`, and a failure takes all tasks back (Storm's way).",
    )
    store: str | None = Field(
        None, description="The pyarrow.fs URI of a folder for checkpoints; all workers must reach it."
    )


class LinkConfig(_Section):
    """Links between workers."""

    tls_cert: str | None = Field(None, description="Certificate file (PEM) for gRPC links between nodes; with tls_key.")
    tls_key: str | None = Field(None, description="Private key file (PEM) for gRPC links between nodes.")
    tls_ca: str | None = Field(None, description="CA file (PEM) that the other side's certificate is checked against.")
    bytes_per_s: float | None = Field(
        None,
        gt=0,
        description="Most bytes a second that a node sends to, and receives from, other nodes and the store of "
        "checkpoints; for benchmarks with several nodes on one machine.",
    )


class IngestConfig(_Section):
    """Senders that push to a topology's ingest source; TLS is that of `links`."""

    token_file: str | None = Field(
        None,
        description="File with the token that senders must show, on every node; by default one is made for each run, "
        "and given to those who can ask the coordinator.",
    )


class Config(_Section):
    """Every setting of a topology."""

    policy: str = Field("static", description="The scheduling policy, by name.")
    workers: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="Worker processes; by default one for each CPU of the cluster, at most one a task.",
    )
    pool: int = Field(
        0,
        ge=0,
        le=1000,
        description="Inactive tasks of each step that are loaded from the start, to be taken in at once.",
    )
    pools: dict[str, int] = Field(default_factory=dict, description="The same by step, over `pool`.")
    spares: int = Field(1, ge=0, le=1000, description="Warm spare workers that wait to take over.")
    nodes: int | None = Field(None, ge=1, description="Spread the workers over this many nodes; by default over all.")
    on_error: Literal["fail", "skip", "dead_letter"] = Field(
        "fail",
        description="When a step's function raises: fail the topology, skip the tuple, or send it to dead letters.",
    )
    slow_call_ms: float = Field(
        1000.0, gt=0, description="A call of a step's function that takes longer is named by `rstream errors`."
    )
    errors_max: int = Field(200, ge=1, le=100_000, description="How many errors are kept for `rstream errors`.")
    delivery: Literal["exactly_once", "at_least_once", "at_most_once"] = Field(
        "exactly_once",
        description="What a crash of a worker does: nothing to the results; some tuples are processed a second time; "
        "or it fails the topology.",
    )
    t_out_s: float | None = Field(
        None, gt=0, description="A step drops tuples that are older than this when their turn comes; by default none."
    )
    q_size: int | None = Field(
        None,
        ge=1,
        description="A source drops what it reads while so many of its tuples wait; by default it waits too.",
    )
    crashes_max: int = Field(
        1000, ge=0, description="So many crashes of workers are survived; the next one fails the topology."
    )
    poison_max: int = Field(
        3,
        ge=1,
        description="So many times in a row a worker's process may end at the same tuple; then the topology fails and "
        "the tuple is shown.",
    )
    seed: int = Field(0, description="Seed of `ctx.random()` and of the policies.")
    stats_interval_s: float = Field(0.5, gt=0.01, description="How often workers report their counters.")
    batch: BatchConfig = Field(default_factory=lambda: BatchConfig(), description="How tuples travel.")
    backup: BackupConfig = Field(default_factory=lambda: BackupConfig(), description="Backups of state.")
    coordinator: CoordinatorConfig = Field(default_factory=lambda: CoordinatorConfig(), description="The coordinator.")
    lease_s: float = Field(
        10.0,
        gt=0,
        description="A worker that the coordinator has not heard of for so long commits nothing outside; one that is "
        "not known to be dead is replaced only after it.",
    )
    control: ControlConfig = Field(default_factory=lambda: ControlConfig(), description="The controller.")
    state: StateConfig = Field(default_factory=lambda: StateConfig(), description="Where state is kept.")
    links: LinkConfig = Field(default_factory=lambda: LinkConfig(), description="Links between workers.")
    ingest: IngestConfig = Field(default_factory=lambda: IngestConfig(), description="Senders of records.")


@dataclass(frozen=True, slots=True)
class Settings:
    """A loaded configuration, with the layer that each value came from."""

    config: Config
    origins: Mapping[str, str]

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """(key, value, origin) of every key."""
        for key in known_keys():
            value: Any = self.config
            for part in key.split("."):
                value = getattr(value, part)
            yield key, value, self.origins.get(key, "default")


def known_keys() -> list[str]:
    """Every key, with dots.

    >>> "batch.window" in known_keys()
    True
    """
    return [key for key, _ in fields()]


def fields() -> Iterator[tuple[str, pydantic.fields.FieldInfo]]:
    """Every key with its field; the documentation page is made from it."""
    for name, field in Config.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, _Section):
            for inner, inner_field in field.annotation.model_fields.items():
                yield f"{name}.{inner}", inner_field
        else:
            yield name, field


def load(
    topology: Mapping[str, Any] | None = None,
    file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """All layers as one checked configuration.

    >>> settings = load(topology={"policy": "es"}, flags={"batch.window": "100"})
    >>> settings.config.batch.window, settings.origins["policy"]
    (100, 'topology')
    """
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    layers = [
        ("topology", _flatten(topology or {}, "the topology's config")),
        (f"file {file}", _flatten(_read(file), f"config file {file}") if file is not None else {}),
        ("environment", _from_environment(os.environ if environment is None else environment)),
        ("flag", _flatten(flags or {}, "--set")),
    ]
    for origin, values in layers:
        for key, value in values.items():
            merged[key] = value
            origins[key] = origin
    nested: dict[str, Any] = {}
    for key, value in merged.items():
        section, _, inner = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[inner] = value
    try:
        return Settings(Config.model_validate(nested), origins)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"][:1].lower() + problem["msg"][1:]
        raise ConfigError(f"{key} ({origins.get(key, 'default')}): {message}, got {problem['input']!r}") from None


def parse_set(pairs: list[str] | tuple[str, ...], option: str = "--set") -> dict[str, Any]:
    """`--set key=value` options as a layer; `option` is the name that errors show.

    >>> parse_set(["batch.window=64", "policy=es"])
    {'batch.window': 64, 'policy': 'es'}
    """
    layer: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"{option} wants key=value, got {pair!r}")
        layer[key.strip()] = _parse(value, f"{option} {pair}")
    return layer


def _flatten(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    known = set(known_keys())
    for key, value in values.items():
        if isinstance(value, Mapping) and key not in known:
            flat.update({f"{key}.{inner}": inner_value for inner, inner_value in value.items()})
        else:
            flat[str(key)] = value
    for key in flat:
        _check_known(key, where)
    return flat


def _check_known(key: str, where: str) -> None:
    known = known_keys()
    if key not in known:
        nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
        raise ConfigError(f"{where}: unknown key {key!r}; the nearest known one is {nearest!r}")


def _read(file: str | os.PathLike[str]) -> Mapping[str, Any]:
    import yaml  # only where there is something to read: a command without settings starts sooner

    try:
        with open(file, encoding="utf-8") as opened:
            content = yaml.safe_load(opened)
    except OSError as error:
        raise ConfigError(f"cannot read config file {file}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise ConfigError(f"config file {file} is not valid YAML: {line}") from None
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise ConfigError(f"config file {file}: wanted keys and values, got a {type(content).__name__}")
    return content


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    layer: dict[str, Any] = {}
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in NOT_SETTINGS:
            key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            _check_known(key, f"environment variable {variable}")
            layer[key] = _parse(text, f"environment variable {variable}")
    return layer


def _parse(text: str, where: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text) if text else None
    except yaml.YAMLError:
        raise ConfigError(f"{where}: {text!r} is no value; quote it if it is meant as text") from None
