"""Makes docs/config.md from the configuration model: `python docs/config_page.py > docs/config.md`.

A test keeps the page true, so a new key is documented by its `description` and by running this.
"""

from __future__ import annotations

import typing
from itertools import groupby
from types import NoneType
from typing import Any

import annotated_types
import pydantic

from rstream.config import Config, fields

HEAD = """# Configuration

<!-- Made by docs/config_page.py from rstream/config.py; change it there. -->

Five layers, each winning over the one before: the defaults below, the topology's own (`Topology("name", policy="es")`),
a YAML file (`--config FILE`), the environment, and flags (`--set key=value`). `rstream status NAME` shows every
value with the layer that it came from. An unknown key is refused, and the nearest known one named.

In a file keys may be nested (`batch: {window: 100}`) or dotted (`batch.window: 100`). In the environment a key is in
capitals after `RSTREAM_`, with two underscores for a dot: `RSTREAM_BATCH__WINDOW=100`.
"""


def page() -> str:
    """The page as text."""
    lines = [HEAD]
    for section, rows in groupby(fields(), key=lambda row: row[0].rpartition(".")[0]):
        title = f"`{section}`: {Config.model_fields[section].description}" if section else "The topology as a whole"
        lines += [f"## {title}", "", "| key | type | default | meaning |", "|---|---|---|---|"]
        lines += [*(_row(key, field) for key, field in rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(key: str, field: pydantic.fields.FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    default = "none" if value is None or value == {} else f"`{value}`"
    return f"| `{key}` | {_type(field)} | {default} | {field.description} |"


def _type(field: pydantic.fields.FieldInfo) -> str:
    names = []
    for part in typing.get_args(field.annotation) if _is_union(field.annotation) else [field.annotation]:
        if typing.get_origin(part) is dict:
            names.append("mapping")
        elif part is not NoneType:
            choices = typing.get_args(part)
            names.append(" \\| ".join(f"`{choice}`" for choice in choices) if choices else part.__name__)
    return ", ".join([*names, *filter(None, map(_bound, field.metadata))])


def _is_union(annotation: Any) -> bool:
    return NoneType in typing.get_args(annotation)


def _bound(metadata: Any) -> str:
    match metadata:
        case annotated_types.Ge(ge):
            return f"at least {ge}"
        case annotated_types.Gt(gt):
            return f"above {gt}"
        case annotated_types.Le(le):
            return f"at most {le}"
        case annotated_types.Lt(lt):
            return f"below {lt}"
    return ""


if __name__ == "__main__":
    print(page(), end="")
