"""The style that a machine can check: who imports whom, clocks and randomness, sizes, docstrings, doctests."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rstream

ROOT = Path(__file__).resolve().parents[1]
LINES_MAX = 600
LINES_WANTED = 400

BASE = {"api", "clock", "config", "environment", "errors", "event_time", "graph", "groupings", "keys", "values"}
"""Modules of rstream/ that everything else may use; among themselves they only form no cycle."""

MAY_IMPORT: dict[str, set[str]] = {
    "base": {"base"},
    "schedulers": {"base", "schedulers"},
    "state": {"base", "state"},
    "operators": {"base", "operators"},
    "dsl": {"base", "operators", "dsl"},
    "core": {"base", "schedulers", "state", "operators", "dsl", "core"},
    "runtime": {"base", "schedulers", "state", "operators", "dsl", "core", "runtime"},
    "lab": {"base", "schedulers", "state", "operators", "dsl", "core", "lab"},
    "spark": {"base", "schedulers", "state", "operators", "dsl", "core", "runtime", "lab", "user", "spark"},
    "topologies": {"base", "operators", "dsl", "user", "topologies"},
}
"""What each layer may import; those not named here (cli, ui, testing, the user's entry points) may import anything."""

ONLY_IN = {"ray": "runtime", "grpc": "runtime", "pyspark": "spark"}
WITHIN_FUNCTIONS = {("rstream.client", "ray")}
"""The driver's side of a host: it may import what the host needs once a function needs it."""
CLOCKS = {
    "time": {
        "time",
        "monotonic",
        "perf_counter",
        "sleep",
        "time_ns",
        "monotonic_ns",
        "perf_counter_ns",
        "process_time",
    },
    "datetime": {"now", "utcnow", "today"},
    "uuid": {"uuid1", "uuid4"},
    "secrets": {"token_hex", "token_bytes", "token_urlsafe", "randbelow", "choice"},
    "os": {"urandom", "getrandom"},
}
RANDOM_CLASSES = {"Random", "Generator", "SeedSequence", "PCG64", "Philox", "default_rng", "BitGenerator"}


@functools.cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    folders = os.walk(ROOT / "rstream", followlinks=True)
    for path in sorted(Path(folder) / name for folder, _, names in folders for name in names if name.endswith(".py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    assert "rstream.operators.sources" in found, "the linked folders are part of the package"
    return found


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


def layer_of(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return "user"
    if parts[1] in BASE:
        return "base"
    if parts[1] == "topology":
        return "dsl"
    folders = {
        "schedulers",
        "state",
        "operators",
        "core",
        "runtime",
        "lab",
        "spark",
        "topologies",
        "cli",
        "ui",
        "testing",
    }
    return parts[1] if parts[1] in folders else "user"


def imports_of(module: str) -> Iterator[tuple[int, str]]:
    """(line, imported module or name), at any depth; those only for type checkers left out."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            skipped.update(inner for child in node.body for inner in ast.walk(child))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are absolute"
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield node.lineno, full if full in modules() else str(node.module)


def top_level_lines(module: str) -> set[int]:
    return {node.lineno for node in tree_of(module).body}


def test_layers_import_only_what_lies_below_them() -> None:
    wrong = []
    for module in modules():
        allowed = MAY_IMPORT.get(layer_of(module))
        for line, imported in imports_of(module):
            if allowed is not None and imported.split(".")[0] == "rstream" and layer_of(imported) not in allowed:
                wrong.append(f"{module}:{line} ({layer_of(module)}) imports {imported} ({layer_of(imported)})")
    assert wrong == []


def test_ray_grpc_and_pyspark_stay_in_their_layers() -> None:
    wrong = [
        f"{module}:{line} imports {imported}; only rstream/{ONLY_IN[imported.split('.')[0]]} may"
        for module in modules()
        for line, imported in imports_of(module)
        if imported.split(".")[0] in ONLY_IN and layer_of(module) != ONLY_IN[imported.split(".")[0]]
        if (module, imported) not in WITHIN_FUNCTIONS or line in top_level_lines(module)
    ]
    assert wrong == []


def test_the_base_modules_form_no_cycle() -> None:
    below = {
        name: {i.split(".")[1] for _, i in imports_of(f"rstream.{name}") if i.startswith("rstream.")} for name in BASE
    }
    left = set(BASE)
    while left:
        ready = {name for name in left if not below[name] & left - {name}}
        assert ready, f"these import each other: {sorted(left)}"
        left -= ready


def test_nothing_imports_the_linked_folders_by_their_bare_names() -> None:
    bare = {"operators", "schedulers", "state", "topologies"}
    paths = [path for path in ROOT.glob("**/*.py") if ".venv" not in path.parts and "build" not in path.parts]
    wrong = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{path.relative_to(ROOT)}:{node.lineno}" for n in names if n.split(".")[0] in bare]  # type: ignore[attr-defined]
    assert wrong == []


def test_clocks_and_randomness_come_from_one_module() -> None:
    """Seeded `random.Random` and numpy generators are allowed: they are handed their seed."""
    wrong = []
    for module in modules():
        if module == "rstream.clock":
            continue
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                if node.attr in CLOCKS.get(owner, ()):
                    wrong.append(f"{module}:{node.lineno} uses {owner}.{node.attr}")
            if isinstance(node, ast.ImportFrom) and node.module in {*CLOCKS, "random"}:
                names = {name.name for name in node.names}
                banned = CLOCKS.get(str(node.module), set()) | (
                    names - RANDOM_CLASSES if node.module == "random" else set()
                )
                wrong += [f"{module}:{node.lineno} imports {node.module}.{name}" for name in sorted(names & banned)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                function = node.func
                owner = ast.unparse(function.value)
                seeded = function.attr in RANDOM_CLASSES and (node.args or node.keywords)
                if owner in ("random", "np.random", "numpy.random") and not seeded:
                    wrong.append(f"{module}:{node.lineno} calls {owner}.{function.attr} without a seed")
    assert wrong == []


QUEUES = {
    "rstream.chaos": "the kills that were dealt out at the start",
    "rstream.core.bolt_task": "a task's own input channels, each once",
    "rstream.core.channel": "credits, and `retained_bytes`",
    "rstream.core.packing": "what one snapshot brought out of its channels, which credits bound",
    "rstream.core.sender": "what is not covered yet: the source grants the window",
    "rstream.core.source_task": "a task's own splits, each once",
    "rstream.core.task": "the order log of one recovery",
    "rstream.core.worker_checkpoints": "the pieces of one task's state while it is loaded",
    "rstream.core.worker_savepoints": "the savepoint's writer takes from it before more is packed",
    "rstream.lab.fifo": "a model of a queue",
    "rstream.operators.ingest": "what senders may push is granted to them, in bytes",
    "rstream.operators.sources": "one read of a socket",
    "rstream.runtime.embedded": "the answers of threads, one for each blocking task",
    "rstream.runtime.links": "`full` stops tuples, and LINK_BYTES_MAX closes the link",
    "rstream.runtime.logs": "the oldest line goes at RING_LINES_MAX, and is counted",
    "rstream.runtime.loop": "`post` refuses at INBOX_MAX",
    "rstream.schedulers.rstorm": "the steps of a topology, each once",
}
"""Modules with queues whose own constructor names no maximum, and what bounds them instead."""


def _makes_unbounded_queue(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "deque":
        return len(node.args) < 2 and not any(keyword.arg == "maxlen" for keyword in node.keywords)
    if name in ("Queue", "LifoQueue", "PriorityQueue"):
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else "queue"
        return owner in ("queue", "multiprocessing") and not node.args and not node.keywords
    return name == "SimpleQueue"


def test_every_queue_has_a_maximum_or_says_what_bounds_it() -> None:
    found = {module for module in modules() for node in ast.walk(tree_of(module)) if _makes_unbounded_queue(node)}
    assert found == QUEUES.keys(), "give it a maximum, or write down here what bounds it"


def test_no_module_is_too_long(record_property: Callable[[str, object], None]) -> None:
    sizes = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in modules().items()}
    record_property("modules past 400 lines", {m: n for m, n in sizes.items() if n > LINES_WANTED})
    too_long = {module: lines for module, lines in sizes.items() if lines > LINES_MAX}
    assert too_long == {}, "split these: past 400 lines ask what a module is two of"


def test_every_module_says_what_it_is_for() -> None:
    assert [
        module for module in modules() if module != "rstream.__main__" and not ast.get_docstring(tree_of(module))
    ] == []


@pytest.mark.parametrize("module", ["rstream.api", "rstream.topology", "rstream.groupings"])
def test_every_public_name_of_the_users_modules_has_a_docstring(module: str) -> None:
    wrong = []

    def visit(node: ast.Module | ast.ClassDef, prefix: str) -> None:
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and not child.name.startswith("_"):
                stub = isinstance(child, ast.FunctionDef) and ast.unparse(child.body[0]) == "..."
                if not ast.get_docstring(child) and not stub:
                    wrong.append(f"{prefix}{child.name}")
                if isinstance(child, ast.ClassDef):
                    visit(child, f"{prefix}{child.name}.")

    visit(tree_of(module), "")
    assert wrong == []


NOT_RUN = ("rstream.runtime", "rstream.spark", "rstream.cli", "rstream.ui", "rstream.__main__", "rstream.client")
"""Their imports are heavy or need a cluster; their examples run in the tests of their own folders."""


def _with_examples() -> list[str]:
    names = [each.name for each in pkgutil.walk_packages(rstream.__path__, "rstream.", onerror=lambda name: None)]
    return ["rstream", *(n for n in names if not n.startswith(NOT_RUN) and ">>>" in modules()[n].read_text("utf-8"))]


@pytest.mark.parametrize("module", _with_examples())
def test_the_examples_in_docstrings_run(module: str) -> None:
    done = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert done.attempted > 0
    assert done.failed == 0, f"{done.failed} examples of {module} fail; run python -m doctest on it"


def test_the_embedded_hosts_examples_run() -> None:
    """It needs neither Ray nor a cluster."""
    done = doctest.testmod(importlib.import_module("rstream.runtime.embedded"))
    assert (done.failed, done.attempted > 0) == (0, True)
