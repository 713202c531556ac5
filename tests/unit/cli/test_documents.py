"""Pages that are made from the program are up to date, and name what there is."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path

import pytest

from rstream import errors
from rstream.cli.main import make_app
from rstream.cli.reference import page
from tests.documents import ROOT, commands


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    assert (ROOT / "docs/cli.md").read_text(encoding="utf-8") == page(), (
        "make it again: python -m rstream.cli.reference > docs/cli.md"
    )


def test_the_page_of_errors_names_every_class_with_its_exit_status() -> None:
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(\w+)` \| (\d) \|", text, re.MULTILINE))
    classes = {
        name: str(kind.exit_status)
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.RStreamError) and kind is not errors.RStreamError
    }
    assert documented == classes


@pytest.mark.parametrize("name", ["README.md", "docs/getting-started.md", "CONTRIBUTING.md"])
def test_every_make_target_that_a_page_names_exists(name: str) -> None:
    targets = [words[1] for words in commands(name) if words[0] == "make"]
    assert targets
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_every_verb_in_the_readme_exists() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("## The command line")[1].split("##")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    verbs = {verb for cell in cells for verb in re.findall(r"`([a-z]+)", cell)}
    assert {"run", "logs", "doctor"} <= verbs <= set(make_app().commands)


def test_make_run_runs_the_word_count_and_make_test_the_tests() -> None:
    makefile = Path(ROOT / "Makefile").read_text(encoding="utf-8")
    assert "rstream run topologies/wordcount.py" in makefile
    assert "python -m tests.run" in makefile
