"""Control elements: what channels carry besides tuples, each a tag and its fields, written and read in this one place.

A control element has an offset like a tuple, so it keeps its place among them whatever fails.
"""

from __future__ import annotations

from typing import Any

from rstream import values as codec

END, WATERMARK, IDLE, MARK, HAND, BARRIER = "end", "watermark", "idle", "mark", "hand", "barrier"
"""END: no more elements. WATERMARK (at_s): no tuple before `at_s` is to come, late ones excepted. IDLE: the sender has
nothing for now, so do not wait for its watermark; a WATERMARK ends that. MARK (version, spans): from here on the sender
routes by a version. HAND (version, low, high, kind, count, entries): the state of these slots, for their owner in that
version. BARRIER (number): all before it belongs to that checkpoint, nothing after it does."""


def control(tag: str, *fields: Any) -> bytes:
    """A control element as the body of a batch.

    >>> parse(control(WATERMARK, 12.5))
    ('watermark', [12.5])
    """
    return codec.encode_one([tag, *fields])


def parse(body: bytes) -> tuple[str, list[Any]]:
    """The tag and the fields of a control element."""
    tag, *fields = codec.decode_one(body)
    return tag, fields
