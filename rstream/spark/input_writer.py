"""Writes DataFrames into a topology's ingest source, batch or stream; `staging.py` makes that exact.

Executors stage their partitions, the driver's `commit` fixes the batch and sends it. Spark starts a process for each
commit and hands it the writer, or for streams the options to make one of.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rstream.clock import fresh_id
from rstream.config import LinkConfig
from rstream.errors import DataError

if TYPE_CHECKING:
    from rstream.runtime.ingest_client import IngestTarget

BATCH = 0
"""The only batch of a write that is no stream."""


def target_of(options: Mapping[str, str]) -> IngestTarget:
    """The workers that the options name."""
    from rstream.runtime.ingest_client import IngestTarget
    from rstream.runtime.ingest_door import read_token

    workers = tuple(each.strip() for each in options.get("workers", "").split(",") if each.strip())
    if not workers:
        raise DataError("rstream: name where the rows go: .option('topology', NAME), or 'workers' and 'token'")
    token = read_token(options["tokenFile"]) if "tokenFile" in options else options.get("token", "")
    if not token:
        raise DataError("rstream: workers take records with a token only: .option('token', ...) or 'tokenFile'")
    tls = LinkConfig(tls_ca=options.get("tlsCa"), tls_cert=options.get("tlsCert"), tls_key=options.get("tlsKey"))
    return IngestTarget(workers, token, options.get("step", ""), tls)


@dataclass(frozen=True)
class Delivery:
    """Where rows go, which columns, and by which folder."""

    target: IngestTarget
    columns: tuple[str, ...]
    staging: str


def delivery(target: IngestTarget, staging: str, schema: Any, overwrite: bool) -> Delivery:
    """Refuse what the topology would not take, before anything is staged."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from rstream.runtime.ingest_client import look
    from rstream.spark.rows import check_columns
    from rstream.spark.staging import Staging

    if overwrite:
        raise DataError("rstream: what a topology was sent cannot be overwritten; use .mode('append')")
    target = Staging(staging).known(target)
    wanted = look(target).columns
    columns = tuple(schema.fieldNames() if wanted is None else (name for name, _ in wanted))
    check_columns("the DataFrame", to_arrow_schema(schema), columns, wanted, {})
    return Delivery(target, columns, staging)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task has staged."""

    file: str


def _files(messages: Sequence[Any]) -> list[str]:
    """In the order of the partitions; tasks that failed have none."""
    return [message.file for message in messages if message is not None]


class _Writer:
    """What both kinds of writer do."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    def _staging(self) -> Any:
        from rstream.spark.staging import Staging

        return Staging(self.delivery.staging)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """On an executor."""
        return Staged(self._staging().stage(iterator))

    def _deliver(self, messages: Sequence[Any], batch_id: int) -> None:
        self._staging().deliver(self.delivery.target, batch_id, _files(messages), self.delivery.columns)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`: once, and once for ever if the user named the folder."""

    def __init__(self, delivery: Delivery, is_lasting: bool) -> None:
        super().__init__(delivery)
        self._is_lasting = is_lasting
        if not is_lasting:
            os.mkdir(delivery.staging)  # before there are executors: those that do not see it are on other machines

    def write(self, iterator: Iterator[Any]) -> Staged:
        """On an executor; one that does not see the driver's folder would stage rows that nobody finds."""
        if not self._is_lasting and not os.path.isdir(self.delivery.staging):
            raise DataError(
                "rstream: the rows of a write wait in a folder of the driver's machine, and an executor runs on "
                "another one; name a folder that all of them see: .option('staging', ...)"
            )
        return super().write(iterator)

    def commit(self, messages: list[Any]) -> None:
        """On the driver: send."""
        self._deliver(messages, BATCH)
        if not self._is_lasting:
            self._staging().remove()

    def abort(self, messages: list[Any]) -> None:
        """On the driver, after a failure; what was written down stays for the next try, if there can be one."""
        if self._is_lasting:
            self._staging().abandon(BATCH, _files(messages))
        else:
            self._staging().remove()


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`: every batch once."""

    def commit(self, messages: list[Any], batchId: int) -> None:
        """On the driver: send."""
        self._deliver(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """On the driver, after a failure."""
        self._staging().abandon(batchId, _files(messages))


def passing_folder() -> str:
    """A folder of this machine for one write, which is gone after it."""
    return os.path.join(tempfile.gettempdir(), f"rstream-write-{fresh_id()}")
