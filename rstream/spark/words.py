"""Words for synthetic text: made of syllables, so that no one's text is shipped, and drawn by Zipf."""

from __future__ import annotations

from rstream.spark.draws import Draws, unit_of, zipf_of

VOCABULARY_SIZE = 20_000
_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z", "st", "tr", "pl", "sh", "ch")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ou", "oo", "ie")


def words_sql(draws: Draws, fewest: int, most: int) -> str:
    """SQL for a sentence of `fewest` to `most` words.

    The k-th word of a row is drawn from a hash of seed, row and k; the word of a rank is spelled from the rank's
    digits, which needs no table of words.
    """
    count = f"cast({fewest} + {draws.below('words', most - fewest + 1)} as int)"
    unit = unit_of(f"xxhash64({draws.bits('word')}, k)")
    rank = zipf_of(unit, VOCABULARY_SIZE, 1.05)
    return f"array_join(transform(transform(sequence(1, {count}), k -> {rank}), r -> {_spelling('r')}), ' ')"


def _spelling(rank: str) -> str:
    """SQL for the word of a rank: two syllables for the 40,000 lowest."""
    onsets, vowels = (", ".join(f"'{part}'" for part in parts) for parts in (_ONSETS, _VOWELS))
    syllable = f"array({onsets})[cast(pmod({{0}}, 20) as int)], array({vowels})[cast(pmod({{0}} div 20, 10) as int)]"
    return f"concat({syllable.format(rank)}, {syllable.format(f'({rank} div 200)')})"
