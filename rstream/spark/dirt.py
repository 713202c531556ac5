"""The synthesiser's dirt: which rows are bad or twice, by exact counts that are known beforehand.

Rows stand in groups of a thousand. A permutation per group deals its rows to ranks; the first ranks are duplicates,
the next ones each kind of fault, the rest clean. A duplicate copies the clean row whose rank mirrors its own, so that
each copy has exactly one original, in the same file. A last group that is not full stays clean.
"""

from __future__ import annotations

from dataclasses import dataclass

from rstream.spark.dataset import Reason

GROUP = 1000
# Multipliers prime to a thousand, each with its inverse: what makes the deal a permutation that can be turned back.
_UNITS = tuple((unit, pow(unit, -1, GROUP)) for unit in (7, 117, 303, 411, 529, 637, 733, 891))


@dataclass(frozen=True)
class Dirt:
    """How many of a thousand rows are duplicates, and how many have each fault."""

    duplicates: int
    faults: tuple[tuple[Reason, int], ...]

    def counts(self, rows: int) -> dict[str, int]:
        """Lines by fault in a set of so many rows.

        >>> Dirt(2, ((Reason.BAD_NUMBER, 1),)).counts(5_999)
        {'bad_number': 5}
        """
        return {str(reason): count * (rows // GROUP) for reason, count in sorted(self.faults)}

    def duplicate_count(self, rows: int) -> int:
        """Lines that repeat another one."""
        return self.duplicates * (rows // GROUP)

    def rank_sql(self, seed: int, rows: int) -> str:
        """SQL for a row's rank in its group; -1 in the last group if it is not full."""
        multiplier = _pick(seed, [unit for unit, _ in _UNITS])
        dealt = f"pmod(pmod(i, {GROUP}L) * {multiplier} + {_shift(seed)}, {GROUP}L)"
        return f"if(i < {rows // GROUP * GROUP}L, {dealt}, -1L)"

    def original_sql(self, seed: int) -> str:
        """SQL for the number of the row whose content row `i` shows, given its `rank`: itself unless a duplicate."""
        inverse = _pick(seed, [inverse for _, inverse in _UNITS])
        mirrored = f"pmod(({GROUP - 1}L - rank - {_shift(seed)} + {GROUP}L) * {inverse}, {GROUP}L)"
        return f"if(rank >= 0 and rank < {self.duplicates}, i - pmod(i, {GROUP}L) + {mirrored}, i)"

    def fault_sql(self) -> str:
        """SQL for the fault of a row, given its `rank`; null for a clean one."""
        cases, at = [], self.duplicates
        for reason, count in self.faults:
            cases.append(f"when rank >= {at} and rank < {at + count} then '{reason}'")
            at += count
        assert at + self.duplicates <= GROUP, "duplicates must find clean originals"
        return f"case {' '.join(cases)} end"


def _group_bits(seed: int, name: str) -> str:
    return f"xxhash64({seed}L, '{name}', i div {GROUP}L)"


def _shift(seed: int) -> str:
    return f"pmod({_group_bits(seed, 'shift')}, {GROUP}L)"


def _pick(seed: int, values: list[int]) -> str:
    literal = ", ".join(f"{value}L" for value in values)
    return f"array({literal})[cast(pmod({_group_bits(seed, 'unit')}, {len(values)}L) as int)]"
