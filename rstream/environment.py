"""Environment variables for the processes that a block of code starts: Ray's, Java's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """These variables for processes that are started in this block, and the processes of those.

    >>> with variables({"RSTREAM_EXAMPLE": "1"}):
    ...     os.environ["RSTREAM_EXAMPLE"]
    '1'
    >>> "RSTREAM_EXAMPLE" in os.environ
    False
    """
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
