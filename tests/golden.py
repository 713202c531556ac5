"""Runs a file of test vectors through product code: `python tests/golden.py FILE` ends with `N passed, M failed`.

A vector names a function, its arguments and what must come back: every expected key must be there, numbers within the
vector's tolerance (relative, with a floor of 1), "inf" is infinity, null is "no answer". The functions are the small
adapters in `tests/vectors/`. A vector without an adapter has failed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# `tests.vectors.state` belongs to the state package and may not be there in a partial checkout.
MODULES = ("queueing", "elastic", "partition", "baselines", "state")

Adapter = Callable[..., Mapping[str, Any]]


def adapters() -> dict[str, Adapter]:
    """Every function of the adapter modules that a vector may name."""
    found: dict[str, Adapter] = {}
    for name in MODULES:
        path = f"tests.vectors.{name}"
        if importlib.util.find_spec(path) is None:
            continue
        module = importlib.import_module(path)
        found |= {key: value for key, value in vars(module).items() if callable(value) and not key.startswith("_")}
    return found


def read(value: Any) -> Any:
    """JSON data with "inf" read as infinity."""
    if isinstance(value, dict):
        return {key: read(item) for key, item in value.items()}
    if isinstance(value, list):
        return [read(item) for item in value]
    return math.inf if value == "inf" else value


def differences(expected: Any, got: Any, tolerance: float, where: str = "") -> Iterator[str]:
    """What is wrong with a result, as lines; nothing when it is right."""
    if isinstance(expected, dict):
        if not isinstance(got, Mapping) or set(got) != set(expected):
            yield f"{where}: wanted the keys {sorted(expected)}, got {got!r}"
            return
        for key in expected:
            yield from differences(expected[key], got[key], tolerance, f"{where}.{key}")
    elif isinstance(expected, list):
        if not isinstance(got, list | tuple) or len(got) != len(expected):
            yield f"{where}: wanted {expected}, got {got!r}"
            return
        for at, (one, other) in enumerate(zip(expected, got, strict=True)):
            yield from differences(one, other, tolerance, f"{where}[{at}]")
    elif not _same(expected, got, tolerance):
        yield f"{where}: wanted {expected!r}, got {got!r}"


def _same(expected: Any, got: Any, tolerance: float) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (expected, got))
    if not numbers:
        return type(expected) is type(got) and bool(expected == got)
    if math.isinf(expected) or math.isinf(got) or math.isnan(got):
        return bool(expected == got)
    return bool(abs(expected - got) <= tolerance * max(1.0, abs(expected)))


def failures(case: Mapping[str, Any], known: Mapping[str, Adapter]) -> list[str]:
    """Run one vector; empty when it passes."""
    adapter = known.get(case["fn"])
    if adapter is None:
        return [f"no adapter for {case['fn']}"]
    expected = read(case["expect"])
    try:
        got = adapter(**read(case["input"]))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    missing = [key for key in expected if key not in got]
    if missing:
        return [f"the result lacks {missing}"]
    return [line for key in expected for line in differences(expected[key], got[key], case.get("tol", 1e-9), key)]


def main(arguments: list[str]) -> int:
    """Run the files; the status is 0 when every vector passed, 1 when one failed, 2 for a file that cannot be used."""
    if not arguments:
        print("usage: python tests/golden.py FILE...", file=sys.stderr)
        return 2
    known = adapters()
    passed = failed = 0
    for name in arguments:
        try:
            cases = json.loads(Path(name).read_text())["cases"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{name}: not a file of vectors: {error}", file=sys.stderr)
            return 2
        for case in cases:
            lines = failures(case, known)
            passed, failed = passed + (not lines), failed + bool(lines)
            for line in lines:
                print(f"{case['id']}: {line}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
