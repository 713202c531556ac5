"""Runs every benchmark, each in a process of its own: `python -m benchmarks [--json] [--quick] [--runs N] [NAME ...]`.

A benchmark is any module of this package with `main(arguments)`; one that can be quick says so with `--quick` among its
options. The status is 1 if any of them could not measure.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import benchmarks

ROOT = Path(__file__).resolve().parent.parent


def programs() -> dict[str, str]:
    """Every benchmark by name, with its source; found without running anything of it."""
    found = {}
    for module in pkgutil.iter_modules(benchmarks.__path__):
        spec = importlib.util.find_spec(f"benchmarks.{module.name}")
        if spec is None or spec.origin is None or module.name == "__main__":
            continue
        source = Path(spec.origin).read_text(encoding="utf-8")
        if "\ndef main(" in source:
            found[module.name] = source
    return found


def run_program(
    name: str, source: str, as_json: bool, quick: bool, runs: int | None = None
) -> tuple[int, dict[str, Any] | None]:
    """(exit status, the object it printed)."""
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    if quick and ("--quick" in source or "common.parser(" in source):
        command.append("--quick")
    if runs is not None and "common.parser(" in source:
        command += ["--runs", str(runs)]
    if not as_json:
        return subprocess.run(command, cwd=ROOT).returncode, None
    done = subprocess.run([*command, "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return done.returncode, None
    return 0, json.loads(done.stdout)


def main(arguments: list[str]) -> int:
    """Run them; with `--json` print one object that holds them all."""
    known = programs()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (default all): {', '.join(known)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--quick", action="store_true", help="small sizes and one run: shows that they work")
    parser.add_argument("--runs", type=int, help="how often each case runs, at full size unless --quick is given")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in known:
            print(f"no benchmark {name!r}; there are: {', '.join(known)}", file=sys.stderr)
            return 2
    status = 0
    results = []
    for name in options.names or known:
        ended, found = run_program(name, known[name], options.json, options.quick, options.runs)
        status = max(status, 1 if ended else 0)
        if found is not None:
            results.append(found)
    if options.json:
        goals = [
            {**goal, "name": f"{found['benchmark']}.{goal['name']}"} for found in results for goal in found["goals"]
        ]
        print(json.dumps({"benchmark": "all", "results": results, "goals": goals}))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
