"""The complex Twitter application of PSPS: eight steps; tweets are split by type, each type is handled its own way.

rstream run topologies/twitter_complex.py -o database=tweets.db
"""

from __future__ import annotations

from typing import Any

from rstream import Topology
from rstream.api import Bolt, Out
from rstream.operators import sinks
from rstream.topologies import inputs

# The last ones are words of the tweets that `rstream data synth` makes.
NEWS, OPINIONS = {"news", "report", "cases", "today", "kaba", "gaba"}, {"think", "opinion", "home", "faba", "paba"}
FIELDS = ("id", "type", "score", "size")


def build(table: str = "", database: str = "", parallelism: int = 2, tweets_per_s: float = 1_000) -> Topology:
    """Every tweet with type, score and size class, written to the table `tweets` of a database, or collected."""
    topology = Topology("twitter_complex")
    source = inputs.rows(table, inputs.TWEETS, inputs.tweet, tweets_per_s)
    tweets = topology.source("tweets", source, parallelism=parallelism)
    clean = tweets.map("clean", words_of, parallelism=parallelism)
    news = clean.process("type", ByType(), outputs=("opinion", "other"), parallelism=parallelism)
    told = news.map("news", score_news, parallelism=parallelism)
    meant = news.output("opinion").map("opinion", score_opinion, parallelism=parallelism)
    rest = news.output("other").map("other", score_other, parallelism=parallelism)
    sized = told.merge("all", meant, rest).map("size", with_size, parallelism=parallelism, fields=FIELDS)
    sized.sink("store", sinks.Sqlite(database, "tweets", FIELDS) if database else None)
    return topology


def words_of(tweet: Any) -> tuple[Any, ...]:
    """(id, words) in lower case, separated by spaces."""
    return tweet[0], " ".join(tweet[3].lower().split())


class ByType(Bolt):
    """News on the default output, opinions and all others on outputs of their own."""

    def process(self, tweet: Any, out: Out) -> None:
        words = set(tweet[1].split())
        if words & NEWS:
            out.emit(tweet)
        else:
            out.emit_to("opinion" if words & OPINIONS else "other", tweet)


def score_news(tweet: Any) -> tuple[Any, ...]:
    """News score by how many of the words of news they have."""
    return tweet[0], "news", sum(word in NEWS for word in tweet[1].split()), len(tweet[1])


def score_opinion(tweet: Any) -> tuple[Any, ...]:
    """Opinions score by how many of the words of opinions they have, doubled."""
    return tweet[0], "opinion", 2 * sum(word in OPINIONS for word in tweet[1].split()), len(tweet[1])


def score_other(tweet: Any) -> tuple[Any, ...]:
    """All others score nothing."""
    return tweet[0], "other", 0, len(tweet[1])


def with_size(tweet: Any) -> tuple[Any, ...]:
    """The length of a tweet as one of three sizes."""
    id, kind, score, length = tweet
    return id, kind, score, "short" if length < 40 else "long" if length >= 80 else "medium"
