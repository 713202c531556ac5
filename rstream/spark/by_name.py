"""A topology that the Spark data source is given by its name: the cluster is asked where rows go, or where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rstream.errors import DataError

if TYPE_CHECKING:
    from rstream.runtime.ingest_client import IngestTarget


@dataclass(frozen=True)
class Place:
    """A step of a topology as Spark sees it."""

    target: IngestTarget | None = None
    """Where rows are sent to, for an ingest source."""
    folder: str = ""
    """Where rows are read, for a file sink."""


def place_of(options: Mapping[str, str]) -> Place:
    """The folder of the file sink that `step` names; for any other step, or none, where to send rows to."""
    from rstream import client
    from rstream.runtime import cluster

    step = options.get("step", "")
    try:
        handle = client.connect(options["topology"], options.get("address"))
        folder = folder_of(handle.status(), step) if step else ""
        return Place(folder=folder) if folder else Place(handle.ingest_target(step))
    finally:
        cluster.stop()


def folder_of(status: Mapping[str, Any], step: str) -> str:
    """Where a sink writes files; empty for a step that writes none.

    >>> status = {"name": "job", "operators": [{"name": "out", "kind": "sink", "folder": "/out"}]}
    >>> folder_of(status, "out")
    '/out'
    >>> folder_of(status, "put")
    Traceback (most recent call last):
    rstream.errors.DataError: rstream: topology 'job' has no step 'put'; it has: out
    """
    folders = {each["name"]: each["folder"] or "" for each in status["operators"]}
    if step not in folders:
        raise DataError(f"rstream: topology {status['name']!r} has no step {step!r}; it has: {', '.join(folders)}")
    return str(folders[step])
