"""The page docs/cli.md, made from the verbs themselves: `python -m rstream.cli.reference > docs/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from rstream.cli.main import make_app

HEAD = """# The command line

This page is made from the program: `python -m rstream.cli.reference > docs/cli.md`. A test keeps it true.

TARGET is a Python file or module with `build()` or a `topology`; `file.py:name` picks another function or topology.
Settings come from defaults < topology < `--config` file < environment `RSTREAM_*` < flags; `rstream status` shows
where each came from, and [config.md](config.md) lists them all.

Exit status: 0 done; 1 failed at run time; 2 wrong usage or bad input, with nothing started; 130 ended by Ctrl-C (after
what was on its way was processed). Errors are one line on standard error; `rstream -v VERB ...` adds the traceback,
and debug logs of what `run` runs. With `--json` standard output holds JSON and nothing else."""


def page() -> str:
    """The whole page."""
    app = make_app()
    return "\n".join([HEAD, *_commands(app, "rstream")]) + "\n"


def _commands(group: click.Group, prefix: str) -> Iterator[str]:
    for name in sorted(group.commands):
        command = group.commands[name]
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix} {name}")
            continue
        context = click.Context(command, info_name=name)
        arguments = " ".join(parameter.make_metavar(context) for parameter in _arguments(command))
        yield f"\n## `{' '.join(filter(None, [prefix, name, arguments]))}`\n"
        yield " ".join((command.help or "").split())
        options = [
            parameter.get_help_record(context) for parameter in command.params if isinstance(parameter, click.Option)
        ]
        rows = [record for record in options if record is not None]
        if rows:
            yield "\n| option | meaning |\n|---|---|"
            yield from (f"| `{flags}` | {' '.join(text.split())} |" for flags, text in rows)


def _arguments(command: click.Command) -> list[click.Argument]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Argument)]


if __name__ == "__main__":
    print(page(), end="")
