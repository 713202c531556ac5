"""Batches of rows on their way from Spark to a topology: fixed first, then sent, so that a retry sends the very same.

What Spark computes again after a failure may come in another order or in other partitions. So executors only stage
their rows in files; the driver then writes down which files are the batch (the first time only), and sends them. What
was written down is sent, whatever Spark computes later; what the topology has covered is skipped, and a batch that is
done is not sent again. The folder is on storage that the driver and all executors see. No Spark here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow
import pyarrow.fs

from rstream.clock import fresh_id
from rstream.errors import RunError
from rstream.operators.parquet_source import plain_values
from rstream.runtime.ingest_client import IngestClient, IngestTarget, look
from rstream.spark.rows import file_system

SEND_ROWS = 500
_PARTS, _STATE = "parts", "state.json"


@dataclass(frozen=True)
class Batch:
    """One batch as it was written down: its files, how many senders share them, and whether all of it is covered."""

    files: tuple[str, ...]
    senders: int
    done: bool = False


class Staging:
    """The folder of one query, or of one write."""

    def __init__(self, uri: str) -> None:
        self._system, self._root = file_system(uri)

    def known(self, target: IngestTarget) -> IngestTarget:
        """The target with the workers that were known last: those that it names may have gone."""
        found = self._read(_STATE)
        workers = () if found is None else found["workers"]
        return replace(target, workers=tuple(dict.fromkeys((*workers, *target.workers))))

    def stage(self, batches: Iterable[Any]) -> str:
        """Write the rows of a partition; gives the file's name, empty without rows."""
        writer, name = None, f"{_PARTS}/{fresh_id()}.arrow"
        with ExitStack() as ended:
            for batch in batches:
                if batch.num_rows and writer is None:
                    self._system.create_dir(f"{self._root}/{_PARTS}", recursive=True)
                    sink = ended.enter_context(self._system.open_output_stream(f"{self._root}/{name}"))
                    writer = ended.enter_context(pyarrow.ipc.new_stream(sink, batch.schema))
                if writer is not None:
                    writer.write_batch(batch)
        return name if writer is not None else ""

    def deliver(self, target: IngestTarget, batch_id: int, files: Sequence[str], columns: Sequence[str]) -> None:
        """Send a batch, or what is left of it; returns when the topology has covered all of it."""
        sender, batch = self._sender(), self._batch(batch_id)
        if batch is None:
            batch = Batch(tuple(name for name in files if name), len(look(target).lanes))
            self._write(_name(batch_id), {"files": batch.files, "senders": batch.senders, "done": False})
        if not batch.done:
            self._send(target, sender, batch_id, batch, columns)
            self._write(_STATE, {"sender": sender, "workers": look(target).workers})
            self._write(_name(batch_id), {"files": (), "senders": batch.senders, "done": True})
        self._clear(batch_id)

    def abandon(self, batch_id: int, files: Sequence[str]) -> None:
        """Let go of files of a batch that did not come about; not of one that was written down."""
        if self._batch(batch_id) is None:
            for name in filter(None, files):
                self._delete(name)

    def remove(self) -> None:
        """The whole folder, if it is there."""
        if self._is_folder(""):
            self._system.delete_dir(self._root)

    def _send(self, target: IngestTarget, sender: str, batch_id: int, batch: Batch, columns: Sequence[str]) -> None:
        def send(part: int) -> list[tuple[int, str]]:
            mine = batch.files[part :: batch.senders]
            if not mine:
                return []
            with IngestClient(target, sender, part, epoch=batch_id) as client:
                skip = client.covered
                for rows in _without(skip, self._rows(mine, columns)) if not client.is_over else ():
                    client.send(rows)
                client.finish()
                return client.refused

        with ThreadPoolExecutor(max(1, batch.senders)) as pool:
            refused = [each for some in pool.map(send, range(batch.senders)) for each in some]
        if refused:
            raise RunError(
                f"{len(refused)} records of batch {batch_id} were refused, the others taken: {refused[0][1]}; "
                "start the query again to go on without them"
            )

    def _rows(self, files: Sequence[str], columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        for name in files:
            with self._system.open_input_stream(f"{self._root}/{name}") as file, pyarrow.ipc.open_stream(file) as read:
                for batch in read:
                    values = [plain_values(batch.column(column)) for column in columns]
                    rows = list(zip(*values, strict=True))
                    yield from (rows[at : at + SEND_ROWS] for at in range(0, len(rows), SEND_ROWS))

    def _sender(self) -> str:
        """The sender's name, made once for this folder: another checkpoint is other data."""
        found = self._read(_STATE)
        if found is None:
            found = {"sender": f"spark-{fresh_id()}", "workers": ()}
            self._write(_STATE, found)
        return str(found["sender"])

    def _batch(self, batch_id: int) -> Batch | None:
        found = self._read(_name(batch_id))
        return None if found is None else Batch(tuple(found["files"]), found["senders"], found["done"])

    def _clear(self, batch_id: int) -> None:
        """All rows of this batch are covered: its files go, and what is known of the one before it."""
        if self._is_folder(f"/{_PARTS}"):
            self._system.delete_dir(f"{self._root}/{_PARTS}")
        self._delete(_name(batch_id - 1))

    def _is_folder(self, name: str) -> bool:
        return bool(self._system.get_file_info(f"{self._root}{name}").type == pyarrow.fs.FileType.Directory)

    def _delete(self, name: str) -> None:
        if self._system.get_file_info(f"{self._root}/{name}").is_file:
            self._system.delete_file(f"{self._root}/{name}")

    def _read(self, name: str) -> Any:
        if not self._system.get_file_info(f"{self._root}/{name}").is_file:
            return None
        with self._system.open_input_stream(f"{self._root}/{name}") as file:
            return json.loads(file.read())

    def _write(self, name: str, content: dict[str, Any]) -> None:
        """As a whole or not at all."""
        self._system.create_dir(self._root, recursive=True)
        made = f"{self._root}/.{name}.{fresh_id()}"
        with self._system.open_output_stream(made) as file:
            file.write(json.dumps(content).encode())
        self._system.move(made, f"{self._root}/{name}")


def _name(batch_id: int) -> str:
    return f"batch-{batch_id}.json"


def _without(skip: int, chunks: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """All but the first so many rows.

    >>> list(_without(3, iter([[1, 2], [3, 4], [5]])))
    [[4], [5]]
    """
    for chunk in chunks:
        if rest := chunk[skip:]:
            yield rest
        skip = max(0, skip - len(chunk))
