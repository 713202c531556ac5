"""What the exact file sinks have committed, as offsets: which files of a folder a reader has read, and which are new.

A sink's task numbers its files from 1 on without a gap, a file appears whole and never changes, and a crash of a worker
neither takes one back nor doubles one. So (task, number) is an offset that can be read again at any time. No Spark and
no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rstream.errors import DataError

Offset = dict[str, int]
"""By task of the sink: the number of the last file that was read."""

_FILE = re.compile(r"(?P<task>.+-\d+)-(?P<number>\d{8,})\.(?P<ending>jsonl|parquet)")


def found(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """The data files among the names in a folder, by task and number.

    >>> found(["out-0-00000001.jsonl", "out-0-00000002.jsonl", "out-1-00000001.jsonl", "notes.txt"])["out-0"]
    {1: 'out-0-00000001.jsonl', 2: 'out-0-00000002.jsonl'}
    """
    files: dict[str, dict[int, str]] = {}
    for name in sorted(names):
        match = _FILE.fullmatch(name)
        if match is not None:
            files.setdefault(match["task"], {})[int(match["number"])] = name
    return files


def first_offset(files: Mapping[str, Mapping[int, str]]) -> Offset:
    """Before the first file of each task that is still there.

    >>> first_offset({"out-0": {3: "c", 4: "d"}})
    {'out-0': 2}
    """
    return {task: min(numbers) - 1 for task, numbers in sorted(files.items())}


def last_offset(files: Mapping[str, Mapping[int, str]], start: Offset, files_max: int | None = None) -> Offset:
    """The newest file of each task; with a limit, so many files after `start`, the tasks in turn.

    Where there is nothing new, this is `start` itself: Spark takes any other text for news and never rests.

    >>> files = {"a-0": {1: "p", 2: "q", 3: "r"}, "b-0": {1: "s"}}
    >>> last_offset(files, {}), last_offset(files, {"a-0": 1}, files_max=2)
    ({'a-0': 3, 'b-0': 1}, {'a-0': 2, 'b-0': 1})
    """
    end = dict(start)
    left = files_max
    waiting = {task: max(numbers) for task, numbers in files.items()}
    while left is None or left > 0:
        behind = [task for task, newest in waiting.items() if newest > end.get(task, 0)]
        if not behind:
            break
        for task in behind if left is None else behind[:left]:
            end[task] = waiting[task] if left is None else end.get(task, 0) + 1
        left = None if left is None else left - len(behind[:left])
    return start if end == start else dict(sorted(end.items()))


def between(files: Mapping[str, Mapping[int, str]], start: Offset, end: Offset) -> list[str]:
    """The files after `start` up to `end`; one that is gone is an error, for its records would be lost in silence.

    >>> between({"a-0": {1: "p", 2: "q"}, "b-0": {1: "s"}}, {"a-0": 1}, {"a-0": 2, "b-0": 1})
    ['q', 's']
    >>> between({"a-0": {2: "q"}}, {}, {"a-0": 2})
    Traceback (most recent call last):
    rstream.errors.DataError: file 1 of sink task 'a-0' is gone and was not read yet; begin with a new checkpoint
    """
    names = []
    for task, last in sorted(end.items()):
        for number in range(start.get(task, 0) + 1, last + 1):
            if number not in files.get(task, {}):
                raise DataError(
                    f"file {number} of sink task {task!r} is gone and was not read yet; begin with a new checkpoint"
                )
            names.append(files[task][number])
    return names


def upto(files: Mapping[str, Mapping[int, str]], end: Offset) -> list[str]:
    """The files that nobody will ask for again once `end` is processed.

    >>> upto({"a-0": {1: "p", 2: "q"}}, {"a-0": 1})
    ['p']
    """
    return [
        name
        for task, numbers in sorted(files.items())
        for number, name in numbers.items()
        if number <= end.get(task, 0)
    ]
