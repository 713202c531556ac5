"""Twitter, PSPS's application: four steps in a row that classify tweets by text and by author, and store them.

rstream run topologies/twitter.py -o store=tweets/
"""

from __future__ import annotations

from typing import Any

from rstream import Topology
from rstream.operators import sinks
from rstream.topologies import inputs

TOPICS = {"vaccine": "health", "mask": "health", "cases": "figures", "report": "news", "news": "news"}
TOPICS |= {"kaba": "health", "gaba": "figures", "paba": "news"}  # of the tweets that `rstream data synth` makes
FIELDS = ("id", "topic", "circle")


def build(table: str = "", store: str = "", parallelism: int = 2, tweets_per_s: float = 1_000) -> Topology:
    """Every tweet with its topic and its author's circle, written to the folder `store`, or collected."""
    topology = Topology("twitter")
    source = inputs.rows(table, inputs.TWEETS, inputs.tweet, tweets_per_s)
    tweets = topology.source("tweets", source, parallelism=parallelism)
    by_text = tweets.map("text", by_topic, parallelism=parallelism)
    by_author = by_text.map("author", by_circle, parallelism=parallelism, fields=FIELDS)
    by_author.sink("store", sinks.Parquet(store, FIELDS) if store else None)
    return topology


def by_topic(tweet: Any) -> tuple[Any, ...]:
    """(id, author, topic): the topic of the first word that has one."""
    id, author, _, text, _ = tweet
    topic = next((TOPICS[word] for word in text.lower().split() if word in TOPICS), "other")
    return id, author, topic


def by_circle(tweet: Any) -> tuple[Any, ...]:
    """(id, topic, circle): authors are put into circles by the last character of their name."""
    id, author, topic = tweet
    return id, topic, "public" if author[-1:] in "02468" else "private"
