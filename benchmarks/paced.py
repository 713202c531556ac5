"""The pipeline of the latency benchmark, in parts that every contender uses alike: pace, split, count, note.

A sentence carries the time at which the source made it and the time at which it was due. The first is what latency is
measured from; the second would also count a source that wakes up late.
"""

from __future__ import annotations

from array import array
from typing import Any

from benchmarks.common import CannotMeasure
from benchmarks.corpus import WORDS_PER_SENTENCE, Corpus
from rstream.clock import SystemClock
from rstream.keys import KeyRanges, slot_of

WARM_UP_S = 1.0
now = SystemClock.now

Sentence = tuple[float, float, str]
Word = tuple[str, float, float]


def goes_to_second(word: str) -> bool:
    """The word belongs to the second of two tasks: then every tuple leaves the first worker, and none stays."""
    return KeyRanges.even(2).owner(slot_of(word)) == 1


CORPUS = Corpus(sentences=1000, vocabulary=1000, wanted=goes_to_second)


class Pacer:
    """Gives out sentences at a steady rate, each stamped when it is given out."""

    def __init__(self, per_s: float, seconds: float) -> None:
        self.per_s, self.total = per_s, int(per_s * seconds)
        self.given = 0
        self._sentences = CORPUS.text()
        self._start_s: float | None = None

    @property
    def ended(self) -> bool:
        """All sentences have been given out."""
        return self.given >= self.total

    @property
    def next_due_s(self) -> float:
        """When the next sentence is due."""
        return (now() if self._start_s is None else self._start_s) + self.given / self.per_s

    def take(self, limit: int) -> list[Sentence]:
        """The sentences that are due now."""
        created_s = now()
        if self._start_s is None:
            self._start_s = created_s
        stop = min(int((created_s - self._start_s) * self.per_s) + 1, self.given + limit, self.total)
        first, self.given = self.given, max(self.given, stop)
        texts = self._sentences
        return [(created_s, self._start_s + at / self.per_s, texts[at % len(texts)]) for at in range(first, self.given)]


def split(sentence: Sentence) -> list[Word]:
    """The words of a sentence, each with its stamps."""
    created_s, due_s, text = sentence
    return [(word, created_s, due_s) for word in text.split()]


class Notes:
    """What the sink notes: for each update the time since the sentence was made, and since it was due."""

    def __init__(self) -> None:
        self.since_created = array("d")
        self.since_due = array("d")
        self.latest: dict[str, int] = {}

    def note(self, word: str, count: int, created_s: float, due_s: float) -> None:
        """An update has arrived."""
        arrived_s = now()
        self.since_created.append(arrived_s - created_s)
        self.since_due.append(arrived_s - due_s)
        self.latest[word] = count

    def packed(self) -> tuple[bytes, bytes, int]:
        """The notes in a form that travels, with the sum of all counts."""
        return self.since_created.tobytes(), self.since_due.tobytes(), sum(self.latest.values())


def latencies(packed: list[Any], per_s: float, seconds: float) -> tuple[array[float], array[float]]:
    """All latencies of one run without its first second, once the number of updates is found right."""
    wanted = int(per_s * seconds) * WORDS_PER_SENTENCE
    created, due = array("d"), array("d")
    total = counted = 0
    for one, other, counts in packed:
        columns = array("d", one), array("d", other)
        total += len(columns[0])
        counted += counts
        skipped = int(len(columns[0]) * min(0.5, WARM_UP_S / seconds))
        created.extend(columns[0][skipped:])
        due.extend(columns[1][skipped:])
    if (total, counted) != (wanted, wanted):
        raise CannotMeasure(f"{wanted} updates were due at the sink, {total} came and the counts say {counted}")
    return created, due
