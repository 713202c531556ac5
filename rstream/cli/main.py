"""The entry point: assembles the verbs and turns every error into one clear line and an exit status.

Each verb lives in its own module with a `register(app)` function, and imports what it needs when it is called, so
that `rstream --help` is instant.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

import click

import rstream
from rstream.errors import OperatorError, RStreamError

VERB_MODULES: tuple[str, ...] = (
    "rstream.cli.topologies",
    "rstream.cli.control",
    "rstream.cli.savepoint",
    "rstream.cli.logs",
    "rstream.cli.doctor",
    "rstream.cli.lab",
    "rstream.cli.faults",
    "rstream.cli.chaos",
    "rstream.cli.data",
    "rstream.cli.replay",
    "rstream.cli.demo",
    "rstream.cli.bench",
)


def make_app() -> click.Group:
    """The whole command tree."""

    @click.group(name="rstream", context_settings={"help_option_names": ["-h", "--help"]})
    @click.version_option(rstream.__version__, prog_name="rstream")
    @click.option("-v", "--verbose", is_flag=True, help="Show tracebacks, and debug logs of what `run` runs.")
    def app(verbose: bool) -> None:
        """Stream processing for Python on Ray."""
        if verbose:
            os.environ["RSTREAM_VERBOSE"] = "1"

    for module in VERB_MODULES:
        register: Callable[[click.Group], None] = importlib.import_module(module).register
        register(app)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit status instead of leaving."""
    try:
        status = make_app().main(args=arguments, prog_name="rstream", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return 130
    except click.ClickException as error:
        _say(error.format_message())
        return 2
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted; a late flush must not print a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RStreamError as error:
        _say(str(error))
        if isinstance(error, OperatorError) and error.traceback:
            print(error.traceback, file=sys.stderr, end="")
        _explain()
        return error.exit_status
    except Exception as error:
        hint = "" if _verbose() else "; run it with -v for the traceback: rstream -v ..."
        _say(f"internal error: {type(error).__name__}: {error}{hint}")
        _explain()
        return 1


def _verbose() -> bool:
    return "RSTREAM_VERBOSE" in os.environ


def _explain() -> None:
    """The traceback of the error at hand, for those who asked for it."""
    if _verbose():
        traceback.print_exc()


def _say(line: str) -> None:
    print(f"rstream: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
