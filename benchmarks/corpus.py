"""The text that the benchmarks count: sentences of words with Zipf's frequencies, from a fixed seed, made in blocks.

Blocks are independent, so that each task of a source makes only its own; an independent count comes from the same
random numbers without ever making a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

WORDS_PER_SENTENCE = 10
BLOCK_SENTENCES = 1000


@dataclass(frozen=True)
class Corpus:
    """`sentences` sentences of ten words over `vocabulary` words, by Zipf's law with this exponent.

    >>> corpus = Corpus(sentences=2000, vocabulary=100)
    >>> len(corpus.block(0)), len(corpus.block(0)[0].split())
    (1000, 10)
    >>> sum(corpus.counts().values())
    20000
    """

    sentences: int = 400_000
    vocabulary: int = 10_000
    exponent: float = 1.1
    seed: int = 20
    wanted: Callable[[str], bool] | None = None
    """Takes only these words into the vocabulary, for a benchmark that must know where a word goes."""

    @property
    def words(self) -> int:
        """How many words there are in all."""
        return self.sentences * WORDS_PER_SENTENCE

    @property
    def blocks(self) -> int:
        """How many blocks there are; all are full."""
        if self.sentences % BLOCK_SENTENCES:
            raise ValueError(f"sentences must be a multiple of {BLOCK_SENTENCES}, got {self.sentences}")
        return self.sentences // BLOCK_SENTENCES

    @cached_property
    def lexicon(self) -> Sequence[str]:
        """The words, the most frequent first; their lengths are about those of a language."""
        found: list[str] = []
        number = 0
        while len(found) < self.vocabulary:
            word = _spell(number)
            if self.wanted is None or self.wanted(word):
                found.append(word)
            number += 1
        return found

    @cached_property
    def _cumulative(self) -> Any:
        weights = np.arange(1, self.vocabulary + 1, dtype=float) ** -self.exponent
        return np.cumsum(weights) / weights.sum()

    def ranks(self, block: int) -> Any:
        """The words of a block as places in the lexicon, a row for each sentence."""
        random = np.random.default_rng([self.seed, block])
        drawn = np.searchsorted(self._cumulative, random.random((BLOCK_SENTENCES, WORDS_PER_SENTENCE)), side="right")
        return np.minimum(drawn, self.vocabulary - 1)

    def block(self, block: int) -> list[str]:
        """The sentences of a block."""
        lexicon = self.lexicon
        return [" ".join([lexicon[rank] for rank in row]) for row in self.ranks(block).tolist()]

    def text(self, first: int = 0, step: int = 1) -> list[str]:
        """The sentences of every `step`-th block from `first` on."""
        return [sentence for block in range(first, self.blocks, step) for sentence in self.block(block)]

    def counts(self) -> dict[str, int]:
        """How often each word occurs, found without splitting anything."""
        total = np.zeros(self.vocabulary, dtype=np.int64)
        for block in range(self.blocks):
            total += np.bincount(self.ranks(block).ravel(), minlength=self.vocabulary)
        return {word: count for word, count in zip(self.lexicon, total.tolist(), strict=True) if count}


def _spell(number: int) -> str:
    """A word for a number: consonants and vowels in turn, so that frequent words are short.

    >>> [_spell(number) for number in (0, 1, 75, 5000)]
    ['ba', 'be', 'baba', 'bonu']
    """
    syllables = ""
    while True:
        number, place = divmod(number, 75)
        syllables = "bcdfghjklmnprst"[place // 5] + "aeiou"[place % 5] + syllables
        if number == 0:
            return syllables
        number -= 1
