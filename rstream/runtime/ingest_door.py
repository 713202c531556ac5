"""Where senders come in: carries frames between gRPC streams and the worker's intake, on the loop's thread."""

from __future__ import annotations

from rstream.config import Config
from rstream.core.ingest_messages import Answer, Refusal, encode, token_of
from rstream.core.intake import Intake
from rstream.core.messages import Frame
from rstream.errors import ConfigError
from rstream.runtime.links import GrpcConnection


class IngestDoor:
    """The streams of senders at one worker."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._connections: dict[int, GrpcConnection] = {}

    def arrived(self, connection: GrpcConnection, frame: tuple[bytes, bytes] | None) -> None:
        """A frame of a sender, or None at the end of its stream."""
        number = id(connection)
        if frame is None:
            self._intake.closed(number)
            self._connections.pop(number, None)
            return
        self._connections[number] = connection
        answer = self._intake.arrived(number, *frame)
        if answer is not None:
            self._send(connection, answer)

    def answer(self, at_rest: bool) -> None:
        """Tell senders how far their records have come."""
        if not self._intake.is_idle:
            for number, answer in self._intake.answers(at_rest):
                self._send(self._connections[number], answer)

    def _send(self, connection: GrpcConnection, answer: Answer) -> None:
        connection.send([Frame(encode(answer))])
        if isinstance(answer, Refusal):
            connection.close()


def ingest_token(config: Config, topology_token: str) -> str:
    """What senders must show: what the file says, else made of the topology's own token."""
    path = config.ingest.token_file
    return token_of(topology_token) if path is None else read_token(path)


def read_token(path: str) -> str:
    """The token in a file."""
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token of senders from {path}: {error}") from None
    if not token:
        raise ConfigError(f"the token file {path} is empty; write a secret into it")
    return token
