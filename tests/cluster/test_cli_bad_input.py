"""Bad input, through the real command line: one clear line on standard error, the exit status, nothing left."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cluster.command import Command, files_in, lines

GOOD = """
from rstream import Topology
def build(n: int = 3):
    topology = Topology("job")
    topology.source("n", list(range(n))).map("same", abs).sink("out")
    return topology
"""
BODY = """
from rstream import Bolt, Topology
from rstream.operators import sources
{code}
def build():
    topology = Topology("job")
    {build}
    return topology
"""


def job(build: str, code: str = "") -> str:
    return BODY.format(code=code, build=build)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(GOOD)
    return tmp_path


def refused(folder: Path, *arguments: str, status: int = 2, environment: dict[str, str] | None = None) -> str:
    """Run a command that must fail with one line; gives the line."""
    before = list(files_in(folder))
    command = Command(folder, environment or {})
    done = command.run(*arguments)
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert len(lines(done.stderr)) == 1, done.stderr
    assert done.stderr.startswith("rstream: ")
    command.left_nothing()
    assert list(files_in(folder)) == before
    return done.stderr.removeprefix("rstream: ").strip()


def test_a_missing_file(folder: Path) -> None:
    assert refused(folder, "run", "nowhere.py") == (
        "no file 'nowhere.py'; give a Python file or module with build() or a topology"
    )


def test_a_missing_module(folder: Path) -> None:
    assert "no module 'nowhere.at_all'" in refused(folder, "run", "nowhere.at_all")


def test_a_syntax_error_names_file_and_line(folder: Path) -> None:
    (folder / "bad.py").write_text("def build(:\n")
    line = refused(folder, "run", "bad.py")
    assert line.endswith("bad.py, line 1: invalid syntax")


def test_an_import_that_fails_names_the_module(folder: Path) -> None:
    (folder / "bad.py").write_text("import no_such_library\n")
    assert refused(folder, "run", "bad.py") == "bad.py: No module named 'no_such_library'"


def test_a_file_without_build(folder: Path) -> None:
    (folder / "bad.py").write_text("x = 1\n")
    assert refused(folder, "run", "bad.py") == (
        "bad.py: has no build() or topology; define build() that returns an rstream.Topology"
    )


def test_a_build_that_raises_names_the_line(folder: Path) -> None:
    (folder / "bad.py").write_text("def build():\n    raise KeyError('colour')\n")
    assert refused(folder, "run", "bad.py") == "bad.py, line 2: build() raised KeyError: 'colour'"


def test_a_build_that_returns_something_else(folder: Path) -> None:
    (folder / "bad.py").write_text("def build():\n    return 5\n")
    assert refused(folder, "run", "bad.py") == "bad.py: build() must return an rstream.Topology, got int"


def test_an_unknown_option_of_build(folder: Path) -> None:
    assert refused(folder, "run", "good.py", "-o", "m=4") == "good.py: build() has no option 'm'; it has: n"


def test_an_option_of_build_that_is_missing(folder: Path) -> None:
    (folder / "bad.py").write_text("def build(n):\n    return None\n")
    assert refused(folder, "run", "bad.py") == "bad.py: build() needs 'n'; give it with: -o n=VALUE"


def test_an_unknown_policy_lists_those_there_are(folder: Path) -> None:
    line = refused(folder, "run", "good.py", "--policy", "evn")
    assert line.startswith("unknown policy 'evn' (did you mean 'even'?); there are es, ra, psps, me, sl, static")


def test_yaml_that_cannot_be_read(folder: Path) -> None:
    (folder / "bad.yaml").write_text("policy: [es\n")
    assert refused(folder, "run", "good.py", "--config", "bad.yaml").startswith(
        "config file bad.yaml is not valid YAML"
    )


def test_a_config_file_that_is_missing(folder: Path) -> None:
    line = refused(folder, "run", "good.py", "--config", "none.yaml")
    assert line == "cannot read config file none.yaml: No such file or directory"


def test_an_unknown_key_names_the_nearest(folder: Path) -> None:
    (folder / "bad.yaml").write_text("polcy: es\n")
    line = refused(folder, "run", "good.py", "--config", "bad.yaml")
    assert line == "config file bad.yaml: unknown key 'polcy'; the nearest known one is 'policy'"


def test_an_unknown_key_in_the_environment(folder: Path) -> None:
    line = refused(folder, "run", "good.py", environment={"RSTREAM_WORKRES": "2"})
    assert line == "environment variable RSTREAM_WORKRES: unknown key 'workres'; the nearest known one is 'workers'"


def test_a_bad_value_names_key_and_origin(folder: Path) -> None:
    line = refused(folder, "run", "good.py", "--set", "batch.window=none")
    assert line.startswith("batch.window (flag): input should be a valid integer")


def test_a_value_that_is_no_yaml(folder: Path) -> None:
    line = refused(folder, "run", "good.py", "--set", "policy=[es")
    assert line == "--set policy=[es: '[es' is no value; quote it if it is meant as text"


def test_a_function_that_cannot_be_sent_to_a_worker(folder: Path) -> None:
    (folder / "bad.py").write_text(
        job(
            "topology.source('n', [1]).map('locked', lambda n: lock and n).sink('out')",
            "import threading\nlock = threading.Lock()",
        ).replace("def build():", "def build():\n    lock = threading.Lock()")
    )
    line = refused(folder, "run", "bad.py")
    assert line.startswith("step 'locked': cannot be sent to a worker (TypeError: cannot pickle '_thread.lock' object)")
    assert line.endswith("make connections, locks and files in open() instead of capturing them")


def test_a_value_that_cannot_travel(folder: Path) -> None:
    (folder / "bad.py").write_text(
        job("topology.source('n', [1]).map('wrap', lambda n: Odd()).sink('out')", "class Odd: pass")
    )
    line = failed(folder, "bad.py")
    assert line.startswith("step 'wrap', task 0: ")
    assert "Odd cannot travel" in line


def test_a_source_that_raises_midway_shows_the_line_of_the_user(folder: Path) -> None:
    (folder / "bad.py").write_text(
        job("topology.source('n', numbers).sink('out')", "def numbers():\n    yield 1\n    raise OSError('no disk')")
    )
    said = failing(folder, "bad.py")
    assert lines(said.stderr)[0] == "rstream: step 'n', task 0: OSError: no disk"
    assert "line 6, in numbers" in said.stderr


def test_a_source_that_raises_when_it_is_opened(folder: Path) -> None:
    (folder / "bad.py").write_text(
        job(
            "topology.source('n', Broken()).sink('out')",
            "from rstream import Spout\nclass Broken(Spout):\n    replayable = True\n"
            "    def open(self, ctx):\n        raise PermissionError('no key')\n",
        )
    )
    said = failing(folder, "bad.py")
    assert lines(said.stderr)[0] == "rstream: step 'n', task 0: PermissionError: no key"


def test_a_tcp_source_with_no_server(folder: Path) -> None:
    port = closed_port()
    (folder / "bad.py").write_text(job(f"topology.source('n', sources.TcpLines('127.0.0.1', {port})).sink('out')"))
    done = failing(folder, "bad.py")
    warning, line = lines(done.stderr)
    assert "this source cannot be read again" in warning
    assert line.startswith(f"rstream: step 'n', task 0: cannot read lines from 127.0.0.1:{port}: ")
    assert line.endswith("is a server listening there?")


def test_a_text_file_that_is_missing(folder: Path) -> None:
    (folder / "bad.py").write_text(job("topology.source('n', sources.Files('none.txt')).sink('out')"))
    assert refused(folder, "run", "--local", "bad.py") == "no file 'none.txt' to read lines from; check the path"


def test_a_source_whose_splits_cannot_be_told(folder: Path) -> None:
    (folder / "bad.py").write_text(
        job(
            "topology.source('n', Broken()).sink('out')",
            "from rstream.api import Source\nclass Broken(Source):\n"
            "    def splits(self, parallelism):\n        raise LookupError('no table')\n"
            "    def reader(self, split, offset):\n        pass\n",
        )
    )
    line = refused(folder, "run", "--local", "bad.py")
    assert line == "step 'n': splits() of its source raised LookupError: no table"


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def failing(folder: Path, target: str) -> CompletedProcess[str]:
    """Run a target that fails at run time, in one process."""
    command = Command(folder)
    done = command.run("run", "--local", "--json", target)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    command.left_nothing()
    return done


def failed(folder: Path, target: str) -> str:
    said = lines(failing(folder, target).stderr)
    assert len(said) == 1, said
    return said[0].removeprefix("rstream: ")


@pytest.mark.parametrize("verb", ["run", "submit", "list", "status"])
def test_a_cluster_that_is_not_reachable_is_said_within_seconds(folder: Path, verb: str) -> None:
    arguments = {"run": ["good.py"], "submit": ["good.py"], "list": []}.get(verb, ["job"])
    command = Command(folder, {"RAY_ADDRESS": f"127.0.0.1:{closed_port()}"})
    done = command.run(verb, *arguments, timeout_s=20)
    assert done.returncode == 2, done.stderr
    [line] = lines(done.stderr)
    assert line.startswith("rstream: no Ray cluster answers at 127.0.0.1:")
    assert line.endswith("start one with: ray start --head")
    command.left_nothing()


def test_a_port_where_something_else_listens_is_no_cluster(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert refused(folder, "list", "--address", address).startswith(f"no Ray cluster answers at {address}")


def test_an_address_that_is_none(folder: Path) -> None:
    assert "nowhere" in refused(folder, "list", "--address", "nowhere")


def test_with_v_the_traceback_of_the_user_is_shown_and_the_status_stays(folder: Path) -> None:
    (folder / "bad.py").write_text("def build():\n    raise KeyError('colour')\n")
    done = Command(folder).run("-v", "run", "bad.py")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "raise KeyError('colour')" in done.stderr


Cli = Callable[..., CompletedProcess[str]]
VERBS = ["status", "errors", "logs", "kill", "activate", "deactivate", "rebalance"]


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_topology_name_lists_those_there_are(rstream: Cli, verb: str) -> None:
    extra = ["-e", "count=2"] if verb == "rebalance" else []
    done = rstream(verb, "nobody", *extra)
    assert done.returncode == 2, done.stderr
    [line] = lines(done.stderr)
    assert line.startswith(("rstream: no topology 'nobody' on this cluster", "rstream: no topology was ever submitted"))


def test_a_replay_to_an_unknown_topology_is_refused_before_its_rows_are_looked_at(rstream: Cli) -> None:
    done = rstream("data", "replay", "nowhere.parquet", "--to", "nobody")
    assert done.returncode == 2, done.stderr
    [line] = lines(done.stderr)
    assert line.startswith(("rstream: no topology 'nobody' on this cluster", "rstream: no topology was ever submitted"))


def test_a_name_that_is_taken_is_refused_and_the_first_topology_goes_on(rstream: Cli, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        job("topology.source('n', sources.Rate(abs, per_s=100)).sink('out', print)").replace('"job"', '"taken"')
    )
    assert rstream("submit", "endless.py", cwd=tmp_path).returncode == 0
    for verb in ("submit", "run"):
        done = rstream(verb, "endless.py", cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        [line] = lines(done.stderr)
        assert line.startswith("rstream: a topology named 'taken' is already")
        assert "rstream kill taken" in line
    assert '"state": "KILLED"' in rstream("kill", "-w", "taken", "--json").stdout


def test_a_source_that_raises_on_a_cluster_ends_the_run_with_step_task_and_node(rstream: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        job("topology.source('n', numbers).sink('out')", "def numbers():\n    yield 1\n    raise OSError('no disk')")
    )
    done = rstream("run", "--json", "bad.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert lines(done.stderr)[0].startswith("rstream: step 'n', task 0, node ")
    assert lines(done.stderr)[0].endswith(": OSError: no disk")
    assert "in numbers" in done.stderr
    assert '"state": "FAILED"' in rstream("status", "job", "--json").stdout
