"""The parameter tables of `docs/policies.md`, made from the code: `python -m rstream.schedulers.document FILE`.

Every policy has a pair of marker lines in the document; what stands between them is replaced. A test fails when the
document no longer says what the code does.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rstream.schedulers.guards import GuardParameters
from rstream.schedulers.policy import Parameters
from rstream.schedulers.registry import BUILT_IN, parameters_class

GUARDS = "guards"


def table(model: type[Parameters]) -> str:
    """One row per parameter: name, default, meaning."""
    if not model.model_fields:
        return "No parameters.\n"
    rows = ["| parameter | default | meaning |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        shown = "none" if field.default is None else f"{field.default}"
        rows.append(f"| `{name}` | {shown} | {field.description} |")
    return "\n".join(rows) + "\n"


def models() -> dict[str, type[Parameters]]:
    """Every documented parameter model by the name of its markers."""
    return {**{name: parameters_class(name) for name in BUILT_IN}, GUARDS: GuardParameters}


def fill(text: str) -> str:
    """The document with every table up to date; a missing pair of markers is an error."""
    for name, model in models().items():
        pattern = re.compile(rf"(<!-- parameters: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        found = pattern.search(text)
        if found is None:
            raise ValueError(f"no markers for {name!r}: <!-- parameters: {name} --> ... <!-- end -->")
        text = text[: found.end(1)] + table(model) + text[found.start(2) :]
    return text


def main(arguments: list[str]) -> int:
    """Rewrite the tables of a document in place."""
    if len(arguments) != 1:
        print("usage: python -m rstream.schedulers.document docs/policies.md", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    path.write_text(fill(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
