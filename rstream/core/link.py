"""The two ends of a link between workers, as the worker machine keeps them."""

from __future__ import annotations

from rstream.core.bolt_task import BoltTask
from rstream.core.channel import Batch, ChannelId, InChannel, OutChannel, TaskId
from rstream.core.messages import Frame


class OutLink:
    """The sending end: channels to one worker, what of them is sealed and unsent, and other frames to send."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.channels: dict[ChannelId, OutChannel] = {}
        self.dirty: dict[ChannelId, OutChannel] = {}
        self.unsent: dict[ChannelId, list[Batch]] = {}
        self.session: int | None = None
        self.cursor: dict[TaskId, int] = {}
        """Up to which position the records of each task were sent in this session."""
        self.outbox: list[Frame] = []
        """Frames that wait for the next turn; they are lost with a session and made anew after HELLO."""
        self.serial = 0
        """The number of a request to a witness, which goes with the next records."""
        self.owes_order = False
        """Records go out at once after HELLO and after a change of placement, not only with data."""
        self.owes_greet = False
        """The other side is asked to open a session: all tasks here were started anew."""
        self.full = False
        """The other side takes what it is sent more slowly than it is made: tuples wait in their channels for now."""
        self.hop_s: float | None = None
        """The quickest way of a message to the other side, measured by probes."""

    def reset(self) -> None:
        """The session is over; the next HELLO says where to go on."""
        self.session = None
        self.full = False
        self.unsent.clear()
        self.dirty.clear()
        self.cursor.clear()
        self.outbox.clear()
        self.serial = 0


class InLink:
    """The receiving end: channels from one worker."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.channels: dict[ChannelId, tuple[InChannel, BoltTask]] = {}
        self.session: int | None = None
        self.outbox: list[Frame] = []
