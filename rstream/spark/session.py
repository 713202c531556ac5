"""Starts Spark quietly: the right Java, a scratch directory that goes away again, all of Spark's talk in one log file.

One session serves a whole process: when there is one already (a notebook, a test run), it is used and left running.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rstream import environment
from rstream.clock import fresh_id
from rstream.errors import DataError, RunError
from rstream.spark.failures import cause_of, one_line, spark_failures
from rstream.spark.java import find_java

LOG_KEY = "spark.rstream.log"
# Python-side loggers of PySpark that print every Java exception on stderr as JSON, besides raising it.
_NOISY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j")

_MASTER = re.compile(r"local|local\[(\*|\d+)(,\d+)?\]|local-cluster\[\d+,\d+,\d+\]|yarn|(spark|k8s)://.+")
_COMPLAINT = re.compile(r"Exception|Error|error:|Invalid")

Say = Callable[[str], None]


@dataclass(frozen=True)
class SparkOptions:
    """Where Spark runs: a master URL, extra settings, and the driver's heap."""

    master: str = "local[*]"
    conf: tuple[tuple[str, str], ...] = ()
    driver_memory: str = "1g"


@contextmanager
def spark_session(options: SparkOptions, say: Say) -> Iterator[Any]:
    """A `SparkSession`, inside which every failure of Spark is a `RunError` of one line that names the log."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise DataError("Spark is not installed: pip install 'rstream-ray[spark]'") from None
    running = SparkSession.getActiveSession()
    if running is not None:
        with spark_failures(running.conf.get(LOG_KEY, "(the session's own)")):
            yield running
        return
    scratch = Path(tempfile.mkdtemp(prefix="rstream-spark-"))
    log = Path(tempfile.gettempdir(), f"rstream-spark-{fresh_id()}.log")
    failed = True
    try:
        with _environment(options, scratch, say):
            session = _start(options, scratch, log)
            try:
                with spark_failures(str(log)):
                    yield session
                failed = False
            finally:
                _stop(session)
    except DataError:
        failed = False  # the request was wrong, not Spark: its log would tell nothing
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if "RSTREAM_VERBOSE" in os.environ:
            say(f"Spark's log: {log}")
        elif not failed:
            log.unlink(missing_ok=True)


@contextmanager
def _environment(options: SparkOptions, scratch: Path, say: Say) -> Iterator[None]:
    """What Spark's scripts read from the environment, for as long as the session lasts."""
    java = find_java(os.environ, scratch)
    if java.message:
        say(java.message)
    wanted = {"JAVA_HOME": str(java.home)}
    if options.master.startswith("local"):
        wanted["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
        # Spark would take the first python3 on the path, which need not be the one that has rstream.
        wanted["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if options.master.startswith("local-cluster"):
        wanted["SPARK_HOME"] = str(_mirror_home(scratch))
    with environment.variables(wanted):
        yield


def _start(options: SparkOptions, scratch: Path, log: Path) -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    for name in _NOISY_LOGGERS:
        logging.getLogger(name).disabled = True
    conf = SparkConf().setAll(sorted(_settings(options, scratch, log).items()))
    try:
        with log.open("ab") as sink:
            gateway = launch_gateway(conf, popen_kwargs={"stdout": sink, "stderr": sink})
        context = SparkContext(gateway=gateway, conf=conf)
    except Exception as error:
        cause = _logged_cause(log) or cause_of(error)
        raise RunError(f"Spark did not start: {cause}; the full log: {log}") from error
    return SparkSession(context)


def _mirror_home(scratch: Path) -> Path:
    """A Spark home of links: the executors of a local cluster write below it, and the package is not theirs."""
    import pyspark

    home = scratch / "spark-home"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def check_master(master: str) -> None:
    """Refuse what no Spark can take for a master, before one is started.

    >>> check_master("local-cluster[2,1,1024]")
    >>> check_master("locl[2]")
    Traceback (most recent call last):
    rstream.errors.DataError: --master 'locl[2]': wanted local[N], local[*], spark://host:port, yarn or k8s://...
    """
    if not _MASTER.fullmatch(master):
        wanted = "local[N], local[*], spark://host:port, yarn or k8s://..."
        raise DataError(f"--master {master!r}: wanted {wanted}")


def _logged_cause(log: Path) -> str:
    """The first complaint in the log of a Java that did not get as far as talking to Python."""
    complaints = (line for line in log.read_text(errors="replace").splitlines() if _COMPLAINT.search(line))
    return one_line(next(complaints, ""))


def _settings(options: SparkOptions, scratch: Path, log: Path) -> dict[str, str]:
    settings = {
        "spark.master": options.master,
        "spark.app.name": "rstream data",
        "spark.driver.memory": options.driver_memory,
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch} -Djava.io.tmpdir={scratch}",
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # no .crc file beside every file
        "spark.local.dir": str(scratch),
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        LOG_KEY: str(log),
    }
    return settings | dict(options.conf)


def _stop(session: Any) -> None:
    """Stop Spark and its Java, also when that Java has died."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    try:
        session.stop()
        if gateway is not None:
            gateway.shutdown()
    except Exception:  # a dead JVM cannot be stopped, and the failure that killed it is already on its way up
        pass
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # the JVM leaves when its standard input ends
        process.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None
