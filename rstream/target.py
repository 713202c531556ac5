"""From a TARGET on the command line to a graph: a file or module with `build()` or a `topology`.

A file inside the rstream package is loaded under its package name; any other file under its own name, with its folder
first on the path, as Python does for a script.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import rstream
from rstream.errors import RStreamError, RunError, TargetError
from rstream.graph import Graph
from rstream.topology import Topology

_PACKAGE = os.path.dirname(os.path.abspath(rstream.__file__))


@dataclass(frozen=True, slots=True)
class Target:
    """A loaded target: its graph, and the folder that its workers need (empty for code that is installed)."""

    graph: Graph
    folder: str
    module: ModuleType
    options: Mapping[str, Any] = field(default_factory=dict)
    """What `build()` was called with."""

    def summary(self, results: Mapping[str, list[Any]]) -> str | None:
        """What the target itself wants to say about the results, if it defines `summary(results)`."""
        say = getattr(self.module, "summary", None)
        try:
            return None if say is None else str(say(results))
        except Exception as error:
            raise RunError(f"{self.module.__name__}: summary() raised {_one_line(error)}") from error

    def truth(self) -> dict[str, list[Any]]:
        """What each sink must hold at the end, as the target's own `truth(**options)` computes it from the input."""
        name = self.module.__name__
        tell = getattr(self.module, "truth", None)
        if tell is None:
            raise TargetError(
                f"{name}: has no truth(); define it beside build(), with the same options: it gives for each sink what "
                "it must hold at the end, counted without rstream, as {'sink': [values]}"
            )
        told = _call(name, tell, self.options, "truth")
        sinks = {operator.name for operator in self.graph.operators if operator.kind == "sink"}
        if not isinstance(told, Mapping) or not told or not set(told) <= sinks:
            raise TargetError(f"{name}: truth() must give values by sink, one or more of: {', '.join(sorted(sinks))}")
        return {sink: list(values) for sink, values in told.items()}


def load(target: str, options: Mapping[str, Any] | None = None) -> Target:
    """Load a target and build its topology with the options given."""
    name, _, attribute = target.partition(":")
    caches = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a run leaves no __pycache__ beside the user's files
    try:
        module, folder = _load_file(name) if name.endswith(".py") or os.sep in name else _load_module(name)
    finally:
        sys.dont_write_bytecode = caches
    return Target(_build(target, module, attribute, options or {}), folder, module, options or {})


def _load_file(path: str) -> tuple[ModuleType, str]:
    if not os.path.isfile(path):
        raise TargetError(f"no file {path!r}; give a Python file or module with build() or a topology")
    inside = _name_in_package(path)
    if inside is not None:
        return _import(inside, path), ""
    folder, file = os.path.split(os.path.abspath(path))
    name = file.removesuffix(".py")
    if "." in name:
        raise TargetError(f"{path}: a file with a dot in its name cannot be imported; rename it")
    loaded = sys.modules.get(name)
    if loaded is not None and os.path.abspath(getattr(loaded, "__file__", "") or "") != os.path.join(folder, file):
        raise TargetError(f"{path}: a module named {name!r} is already loaded; rename the file")
    sys.path.insert(0, folder)
    return _import(name, path), folder


def _name_in_package(path: str) -> str | None:
    """The dotted name of a file that belongs to rstream, through the links of its package folder too."""
    real = os.path.realpath(path)
    for entry in ("operators", "schedulers", "state", "topologies", ""):
        root = os.path.realpath(os.path.join(_PACKAGE, entry))
        if real.startswith(root + os.sep):
            inner = os.path.relpath(real, root).removesuffix(".py").replace(os.sep, ".")
            return ".".join(part for part in ("rstream", entry, inner) if part)
    return None


def _load_module(name: str) -> tuple[ModuleType, str]:
    sys.path.insert(0, os.getcwd())
    module = _import(name, name)
    file = os.path.abspath(module.__file__ or "")
    if not file.startswith(os.getcwd() + os.sep) or file.startswith(_PACKAGE + os.sep):
        return module, ""
    return module, os.getcwd()


def _import(name: str, shown: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except SyntaxError as error:
        raise TargetError(f"{error.filename or shown}, line {error.lineno}: {error.msg}") from error
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise TargetError(f"no module {name!r}; give a Python file or module with build() or a topology") from None
        raise TargetError(f"{shown}: {error}") from error
    except RStreamError:
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(f"{shown}{_line_of(error, shown)}: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _line_of(error: BaseException, shown: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(shown)]
    return f", line {lines[-1]}" if lines else ""


def _build(target: str, module: ModuleType, attribute: str, options: Mapping[str, Any]) -> Graph:
    found = getattr(module, attribute or "build", None) or (None if attribute else getattr(module, "topology", None))
    if found is None:
        wanted = f"{attribute!r}" if attribute else "build() or topology"
        raise TargetError(f"{target}: has no {wanted}; define build() that returns an rstream.Topology")
    if callable(found):
        found = _call(target, found, options)
    elif options:
        raise TargetError(f"{target}: options are for build(), and it has none")
    if isinstance(found, Topology):
        return found.build()
    if isinstance(found, Graph):
        return found
    raise TargetError(f"{target}: build() must return an rstream.Topology, got {type(found).__name__}")


def _call(target: str, build: Any, options: Mapping[str, Any], what: str = "build") -> Any:
    parameters = inspect.signature(build).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    for option in options:
        if option not in known and len(known) == len(parameters):
            raise TargetError(f"{target}: {what}() has no option {option!r}; it has: {', '.join(known) or 'none'}")
    for parameter in parameters:
        if parameter.name in known and parameter.default is parameter.empty and parameter.name not in options:
            raise TargetError(f"{target}: {what}() needs {parameter.name!r}; give it with: -o {parameter.name}=VALUE")
    try:
        return build(**options)
    except RStreamError:
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(f"{target}{_line_of(error, target)}: {what}() raised {_one_line(error)}") from error
