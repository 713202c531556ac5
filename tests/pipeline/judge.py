"""Plain Python that judges raw Tianchi lines, written from the data set's description and not from our parser."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

FIRST_S, END_S = 1511539200, 1512316800  # 2017-11-25 and 2017-12-04, midnight in Beijing


def judge(directory: Path) -> tuple[Counter[str], int, set[tuple[str, ...]]]:
    """Faults by reason, repeated rows, and the distinct good rows."""
    faults: Counter[str] = Counter()
    good: Counter[tuple[str, ...]] = Counter()
    for file in sorted(directory.glob("*.csv")):
        for line in file.read_bytes().split(b"\n")[:-1]:
            reason, row = _judge_line(line)
            if reason:
                faults[reason] += 1
            else:
                good[row] += 1
    return faults, sum(good.values()) - len(good), set(good)


def _judge_line(line: bytes) -> tuple[str, tuple[str, ...]]:
    if not line.strip():
        return "blank_line", ()
    try:
        fields = tuple(line.decode("utf-8").split(","))
    except UnicodeDecodeError:
        return "not_utf8", ()
    if len(fields) != 5:
        return "wrong_column_count", ()
    if not all(fields):
        return "missing_value", ()
    if not all(field.isdigit() for field in fields[:3]):
        return "bad_number", ()
    if fields[3] not in {"pv", "buy", "cart", "fav"}:
        return "bad_value", ()
    if not fields[4].lstrip("-").isdigit():
        return "bad_time", ()
    if not FIRST_S <= int(fields[4]) < END_S:
        return "time_out_of_range", ()
    return "", fields
