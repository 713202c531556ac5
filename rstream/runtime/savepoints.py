"""Savepoints on storage: a folder at any place that pyarrow.fs can reach. Reading, writing, and refusing damaged ones.

The manifest is written last, so a folder without one is no savepoint, whatever else is in it. Every attempt writes
files of its own: one that was interrupted never spoils what an earlier one has completed.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from xxhash import xxh3_64

from rstream.core.packing import Loader
from rstream.core.portable import Head
from rstream.core.savepoint import MAGIC, MANIFEST, Manifest, SavedTask, check
from rstream.core.worker_savepoints import StateFile
from rstream.errors import SavepointError, StateLost
from rstream.graph import Graph
from rstream.state.keyed import KeyedState

READ_BYTES = 1 << 20


def full_uri(where: str) -> str:
    """A place as every process sees it: paths of this machine become absolute."""
    return where if "://" in where else os.path.abspath(where)


def made_by() -> str:
    """The version of rstream that writes here; empty where it runs without being installed."""
    try:
        return importlib.metadata.version("rstream-ray")
    except importlib.metadata.PackageNotFoundError:
        return ""


class SavepointFolder:
    """The place of one savepoint."""

    def __init__(self, uri: str) -> None:
        from pyarrow import fs

        self.uri = uri
        try:
            self._fs, self._root = fs.FileSystem.from_uri(uri)
        except Exception as error:  # pyarrow has an error of its own for each kind of wrong place
            raise SavepointError(f"savepoint {uri}: not a place that can be used: {_first_line(error)}") from None

    # Writing.

    def prepare(self) -> None:
        """Make the folder, unless a savepoint is there already."""
        with self._storage("cannot be written"):
            from pyarrow import fs

            self._fs.create_dir(self._root, recursive=True)
            found = self._fs.get_file_info(f"{self._root}/{MANIFEST}")
            if found.type != fs.FileType.NotFound:
                raise SavepointError(f"savepoint {self.uri}: there is one already; choose another place")

    def write(self, state: StateFile, attempt: int, wait: Callable[[], bool]) -> SavedTask | None:
        """Write a task's file as its chunks are packed. `wait` is called where none is ready; None if it says no."""
        name = f"{quote(state.task.operator, safe='')}-{state.task.number}.{attempt}.state"
        digest, size = xxh3_64(), 0
        with self._storage("cannot be written"), self._fs.open_output_stream(f"{self._root}/{name}") as file:
            while True:
                packed = state.is_packed
                chunk = state.chunks.take()
                if chunk is not None:
                    digest.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
                elif packed:
                    break
                elif not wait():
                    return None
        return replace(state.about, file=name, bytes=size, checksum=digest.hexdigest())

    def close(self, manifest: Manifest) -> None:
        """All files are written: from now on it is a savepoint."""
        with self._storage("cannot be written"):
            path = f"{self._root}/{MANIFEST}"
            with self._fs.open_output_stream(f"{path}.new") as file:
                file.write(manifest.to_json())
            self._fs.move(f"{path}.new", path)

    # Reading.

    def load_manifest(self) -> Manifest:
        """What is in it; refused where it is damaged, or no savepoint."""
        try:
            with self._fs.open_input_stream(f"{self._root}/{MANIFEST}") as file:
                content: bytes = file.read()
        except FileNotFoundError:
            raise SavepointError(
                f"savepoint {self.uri}: there is no {MANIFEST}: it is no savepoint, or was never completed"
            ) from None
        except OSError as error:
            raise SavepointError(f"savepoint {self.uri}: cannot be read: {_first_line(error)}") from None
        return Manifest.from_json(content, self.uri)

    def check_files(self, manifest: Manifest) -> None:
        """Every file is there, with its size; what is in it is checked by whoever loads it."""
        with self._storage("cannot be read"):
            found = self._fs.get_file_info([f"{self._root}/{task.file}" for task in manifest.tasks])
        for task, info in zip(manifest.tasks, found, strict=True):
            if not info.is_file:
                raise SavepointError(f"savepoint {self.uri}: it is damaged: file {task.file} is missing")
            if info.size != task.bytes:
                raise SavepointError(
                    f"savepoint {self.uri}: it is damaged: file {task.file} has {info.size} bytes of {task.bytes}"
                )

    @contextlib.contextmanager
    def _storage(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SavepointError(f"savepoint {self.uri}: {what}: {_first_line(error)}") from None

    def chunks(self, file: str) -> Iterator[bytes]:
        """The content of a file, bit by bit."""
        with self._storage("cannot be read"), self._fs.open_input_stream(f"{self._root}/{file}") as opened:
            while chunk := opened.read(READ_BYTES):
                yield chunk


class LoadedSavepoint:
    """A savepoint to start from (`rstream.core.portable.Savepoint`)."""

    def __init__(self, uri: str) -> None:
        self._folder = SavepointFolder(uri)
        self.manifest = self._folder.load_manifest()

    def check(self, graph: Graph) -> None:
        """Refuse what this topology cannot start from, before anything is started."""
        check(self.manifest, graph, self._folder.uri)
        self._folder.check_files(self.manifest)

    def read(self, task: SavedTask, state: KeyedState, keeps: Callable[[Any], bool] | None) -> Head:
        """Load a task's file; refused if a single byte of it is not as it was written."""
        loader = Loader(state, keeps)
        digest, begins = xxh3_64(), b""
        damaged = f"savepoint {self._folder.uri}: it is damaged: file {task.file}"
        try:
            for chunk in self._folder.chunks(task.file):
                digest.update(chunk)
                if len(begins) < len(MAGIC):
                    begins += chunk
                    if len(begins) < len(MAGIC):
                        continue
                    chunk = begins[len(MAGIC) :]
                loader.feed(chunk)
                while loader.work():
                    pass
            if digest.hexdigest() != task.checksum or not begins.startswith(MAGIC):
                raise SavepointError(f"{damaged} is not what was written: its checksum is wrong")
            loader.end_snapshot()
        except (StateLost, ValueError, KeyError, TypeError, IndexError) as error:
            raise SavepointError(f"{damaged} cannot be read: {_first_line(error)}") from None
        return loader.head


def open_savepoint(uri: str, graph: Graph) -> LoadedSavepoint | None:
    """The savepoint to start a topology from; None without one."""
    if not uri:
        return None
    loaded = LoadedSavepoint(uri)
    loaded.check(graph)
    return loaded


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
