"""Deterministic draws for the synthesiser: every value is a hash of seed, name and row number.

So a row is the same whichever task makes it. Times come from a table made on the driver (a daily cycle with spikes,
cut into cells that hold equally many rows) by whole-number arithmetic, and so are fractions printed: the text of a
floating-point number differs between versions of Java.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

import xxhash

CELLS = 4096  # of the time table; a cell holds rows / CELLS rows
JITTER_S = 300  # events reach the file out of order by up to this much to either side
_SPIKES = 4
_SPIKE_HEIGHT = 6.0
_SPIKE_MINUTES = 12
_EPOCH_DAY = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Draws:
    """Draws for the row whose number is the SQL column `row`."""

    seed: int
    row: str = "c"

    def bits(self, name: str) -> str:
        """SQL for 64 random bits, one stream per name."""
        return f"xxhash64({self.seed}L, '{name}', {self.row})"

    def below(self, name: str, limit: int) -> str:
        """SQL for a whole number from 0 to limit - 1, all equally likely."""
        return f"pmod({self.bits(name)}, {limit}L)"

    def unit(self, name: str) -> str:
        """SQL for a number in [0, 1)."""
        return unit_of(self.bits(name))

    def zipf(self, name: str, limit: int, exponent: float = 1.1) -> str:
        """SQL for a rank from 1 to limit, where rank k is drawn about k ** -exponent as often as rank 1."""
        return zipf_of(self.unit(name), limit, exponent)

    def fraction(self, name: str, limit: int) -> str:
        """SQL for the text of a number from 0 to limit with six digits after the point."""
        return f"concat({self.below(name, limit)}, '.', lpad({self.below(name + '.', 1_000_000)}, 6, '0'))"


def unit_of(bits: str) -> str:
    """SQL for 64 bits as a number in [0, 1)."""
    return f"(shiftrightunsigned({bits}, 11) * {2.0**-53!r}D)"


def zipf_of(unit: str, limit: int, exponent: float) -> str:
    """SQL for the inverse of the bounded Zipf distribution, its sum replaced by the integral."""
    power = 1.0 - exponent
    span = float(limit) ** power - 1.0
    return f"least({limit}L, cast(floor(pow({span!r}D * {unit} + 1D, {1.0 / power!r}D)) as bigint))"


def time_table(seed: int, first: str, days: int, utc_offset_h: int) -> list[int]:
    """The unix second at which each cell begins (and the last one ends): a day's rhythm, and a few spikes.

    >>> table = time_table(7, "2017-11-25", 9, 8)
    >>> len(table) == CELLS + 1, table == sorted(table), (table[-1] - table[0]) // 86400
    (True, True, 9)
    """
    minutes = days * 1440
    weights = [1.0 + 0.8 * math.sin(2 * math.pi * (minute % 1440 / 1440 - 0.375)) for minute in range(minutes)]
    for spike in range(_SPIKES):
        start = xxhash.xxh3_64_intdigest(f"spike {spike}".encode(), seed=seed % 2**64) % (minutes - _SPIKE_MINUTES)
        for minute in range(start, start + _SPIKE_MINUTES):
            weights[minute] *= _SPIKE_HEIGHT
    start_s = (date.fromisoformat(first).toordinal() - _EPOCH_DAY) * 86400 - utc_offset_h * 3600
    return [start_s + int(second) for second in _quantiles(weights)]


def _quantiles(weights: list[float]) -> list[float]:
    """The second at which each 1/CELLS of the total weight (per minute) is reached."""
    total, reached, minute = sum(weights), 0.0, 0
    seconds = []
    for cell in range(CELLS):
        wanted = total * cell / CELLS
        while reached + weights[minute] <= wanted:
            reached += weights[minute]
            minute += 1
        seconds.append(60 * (minute + (wanted - reached) / weights[minute]))
    return [*seconds, 60.0 * len(weights)]


def densest_rows_per_s(table: list[int], rows: int) -> float:
    """The highest rate in the table when it is spread over so many rows."""
    return rows / CELLS / max(1, min(after - before for before, after in pairwise(table)))


def time_steps(table: list[int], rows: int, draws: Draws) -> tuple[tuple[str, str], ...]:
    """Columns that end in `t`, the unix second of row `c`: its place in the table, moved by the jitter.

    The jitter never moves a row out of the period.
    """
    # Parsed once when the job is planned; as a list of literals it would be four thousand calls into Java.
    literal = f"from_json('{table}', 'array<bigint>')"
    within = f"t_begin + (t_end - t_begin) * pmod(c * {CELLS}L, {rows}L) div {rows}L"
    moved = f"{within} + {draws.below('jitter', 2 * JITTER_S + 1)} - {JITTER_S}L"
    return (
        ("cell", f"cast((c * {CELLS}L) div {rows}L as int)"),
        ("t_begin", f"{literal}[cell]"),
        ("t_end", f"{literal}[cell + 1]"),
        ("t", f"greatest({table[0]}L, least({table[-1] - 1}L, {moved}))"),
    )
