"""Backups as a worker makes them: snapshots packed between steps and sent as they are made, and those held for others.

Also how a lost task's fragments come back. Everything long is cut into slices: in each pass a worker packs or loads
for `Limits.slice_s` at most, so that no tuple waits longer for it. PROTOCOL.md has the rules by the numbers given here
in brackets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from rstream.core.backup import InFlight, Way
from rstream.core.channel import TaskId
from rstream.core.link import OutLink
from rstream.core.messages import (
    FragmentEnd,
    FragmentHeld,
    FragmentPiece,
    Frame,
    Pull,
    Pulled,
    Safe,
    frame,
)
from rstream.core.recovery_times import RecoveryTimes
from rstream.core.restoring import DECODE, Piece, Pulling, Wanted
from rstream.core.sink_commits import CommittingTasks
from rstream.state.erasure import FragmentReader, Label

RECOVERIES_KEPT = 16
UNHELD_BYTES_MAX = 1 << 20
"""So much of a fragment may be on its way: data on the same link must not wait behind all of a large state."""


class BackedTasks(CommittingTasks, ABC):
    """The tasks of one worker, their links, and their backups."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.restoring: dict[TaskId, Pulling] = {}
        self.recoveries: deque[RecoveryTimes] = deque(maxlen=RECOVERIES_KEPT)

    def run_pass(self) -> bool:
        worked = super().run_pass()
        if self.restoring:
            return self._load() or worked
        if self.recoveries and self.recoveries[-1].replayed_s is None:
            self._note_replayed()
        if self.backup_interval_s is not None:
            worked |= self._back_up(self.clock(), self.backup_interval_s)
        return worked

    def _note_replayed(self) -> None:
        if not any(task.replay for task in self.tasks):
            self.recoveries[-1].replayed_s = self.clock()

    # Backups of own tasks (W6).

    def _back_up(self, now_s: float, interval_s: float) -> bool:
        for task in self.tasks:
            if task.commits:
                continue
            if not self.backups.is_protected(task.id):
                task.log.trim(task.position)
            elif task.opened and self.backups.is_due(task, now_s, interval_s) and task.knows_receivers:
                self.backups.cut(task, self.deployment.incarnations.get(task.id, 0), now_s)
        packing = [id for id, flying in self.backups.in_flight.items() if flying.packer.fragments is None]
        if not packing:
            return False
        for id in packing:
            flying = self.backups.in_flight[id]
            while flying.packer.work() and self.clock() - now_s < self.limits.slice_s:
                pass
            self._send_pieces(id, flying)
            if self.clock() - now_s >= self.limits.slice_s:
                # The next pass begins with the others.
                self.backups.in_flight[id] = self.backups.in_flight.pop(id)
                break
        return True

    def _send_pieces(self, task: TaskId, flying: InFlight, holder: str | None = None) -> None:
        """Send what is made and may be on its way, to all holders or to one."""
        for (name, index), way in flying.ways.items():
            if holder in (None, name):
                link = self._out_link(name)
                if link.session is not None:  # else HELLO will ask for them
                    self._send_some(link, task, flying, index, way)

    def _send_some(self, link: OutLink, task: TaskId, flying: InFlight, index: int, way: Way) -> None:
        label, writer = flying.label, flying.packer.writer
        assert link.session is not None, "pieces go out within a session"
        while way.sent < writer.stripes and way.bytes_unheld < UNHELD_BYTES_MAX:
            piece = writer.piece(index, way.sent)
            facts = (label.epoch, label.previous, label.base, index, writer.r, writer.c, writer.code, way.sent)
            link.outbox.append(frame(FragmentPiece(self.incarnation, link.session, task, *facts), piece))
            way.sent += 1
            way.bytes_unheld += len(piece)
        if flying.packer.fragments is not None and way.sent == writer.stripes and not way.closed:
            way.closed = True
            whole = flying.packer.fragments[index]
            end = (label.epoch, index, flying.position, whole.length, whole.checksum)
            link.outbox.append(frame(FragmentEnd(self.incarnation, link.session, task, *end)))

    def _resend(self, peer: str) -> None:
        """A new session has begun: what was on its way to this worker, besides data, goes again."""
        link = self.out_links[peer]
        if link.session is None:
            return
        for task, flying in self.backups.in_flight.items():
            for (holder, _), way in flying.ways.items():
                if holder == peer:
                    way.restart()
            self._send_pieces(task, flying, peer)
        for pulling in self.restoring.values():
            link.outbox += [self._pull(pulling, wanted) for wanted in pulling.wanted(peer)]

    def on_held(self, peer: str, held: FragmentHeld) -> None:
        """A holder has more of a fragment; when all have theirs the snapshot is safe."""
        if not self._in_session(self.out_links.get(peer), held):
            return
        if not held.whole:
            self._note_held(peer, held)
            return
        safe = self.backups.acknowledged(peer, held.task, held.epoch, held.index)
        task = self.by_id.get(held.task)
        if safe is None or task is None:
            return
        task.uncovered_bytes -= safe.covers_bytes
        task.covered_by(safe.own)
        task.log.trim(safe.position)
        about = (task.id, safe.epoch, safe.label.base_epoch)
        self.backups.drop_before(*about)
        former = self.backups.former.pop(task.id, set()) & self.deployment.workers.keys()
        for holder in sorted({*self.backups.layouts[task.id].holders, *former} - {self.worker}):
            link = self.out_links.get(holder)
            if link is not None and link.session is not None:
                link.outbox.append(frame(Safe(self.incarnation, link.session, *about)))
            else:
                self.backups.former.setdefault(task.id, set()).add(holder)

    def _note_held(self, peer: str, held: FragmentHeld) -> None:
        flying = self.backups.in_flight.get(held.task)
        way = flying.ways.get((peer, held.index)) if flying is not None and flying.epoch == held.epoch else None
        if flying is None or way is None or held.pieces > way.sent:
            return
        if held.pieces == 0:
            way.restart()
        for number in range(way.held, held.pieces):
            way.bytes_unheld -= len(flying.packer.writer.piece(held.index, number))
        way.held = held.pieces
        self._send_pieces(held.task, flying, peer)

    # What is held for others.

    def on_piece(self, peer: str, piece: FragmentPiece, body: bytes) -> None:
        """Another piece of a fragment to hold."""
        if not self._in_session(self.in_links.get(peer), piece):
            return
        key = (piece.task, piece.index)
        if piece.number == 0:
            label = Label(str(piece.task), piece.epoch, piece.previous, piece.base)
            self.backups.arriving[key] = FragmentReader(label, piece.index, piece.r, piece.c, piece.code)
        reader = self.backups.arriving.get(key)
        if reader is None or reader.label.epoch != piece.epoch or len(reader.pieces) != piece.number:
            return
        reader.add(body)
        self._say_held(peer, piece, len(reader.pieces))

    def on_fragment_end(self, peer: str, end: FragmentEnd) -> None:
        """A fragment is complete: hold it, and say so; ask for it again where it is damaged."""
        reader = self.backups.arriving.get((end.task, end.index))
        if not self._in_session(self.in_links.get(peer), end) or reader is None or reader.label.epoch != end.epoch:
            return
        del self.backups.arriving[end.task, end.index]
        fragment = reader.finish(end.length, end.checksum)
        if fragment is None:
            self._say_held(peer, end, 0)
        elif self.backups.hold(end.task, fragment, end.position):
            self._say_held(peer, end, len(fragment.pieces), whole=True)

    def _say_held(self, peer: str, about: FragmentPiece | FragmentEnd, pieces: int, whole: bool = False) -> None:
        link = self.in_links[peer]
        assert link.session is not None, "a session has a number"
        held = (about.task, about.epoch, about.index, pieces, whole)
        link.outbox.append(frame(FragmentHeld(self.incarnation, link.session, *held)))

    def on_safe(self, peer: str, safe: Safe) -> None:
        """Drop what a safe snapshot does not build on."""
        if self._in_session(self.in_links.get(peer), safe):
            self.backups.drop_before(safe.task, safe.epoch, safe.base)

    # Fragments of lost tasks.

    def on_pull(self, peer: str, pull: Pull) -> None:
        """The new host of a task asks for pieces of a fragment."""
        outbox = self._in_link(peer).outbox
        held = self.backups.store.find(str(pull.task), pull.epoch, pull.index)
        if held is None:
            gone = Piece(pull.index, pull.first, 0, None, None, 1, 0, 0, "", 0)
            outbox.append(frame(Pulled(self.incarnation, pull.task, pull.epoch, gone)))
            return
        total = len(held.pieces)
        label, facts = held.label, (held.r, held.c, held.length, held.code, held.checksum)
        for number in range(pull.first, min(pull.first + pull.count, total)):
            piece = Piece(pull.index, number, total, label.previous, label.base, *facts)
            outbox.append(frame(Pulled(self.incarnation, pull.task, pull.epoch, piece), held.pieces[number]))

    def on_pulled(self, peer: str, pulled: Pulled, body: bytes) -> None:
        """A piece for a restore arrived."""
        pulling = self.restoring.get(pulled.task)
        if pulling is None or pulled.epoch not in pulling.restore.chain:
            return
        for worker, wanted in pulling.take(pulled.epoch, pulled.piece, body):
            link = self._out_link(worker)
            if link.session is not None:
                link.outbox.append(self._pull(pulling, wanted))
        self._give_own(pulling)

    def _give_own(self, pulling: Pulling) -> None:
        """What this worker holds itself need not travel."""
        for epoch, index in pulling.held_here():
            fragment = self.backups.store.find(str(pulling.restore.task), epoch, index)
            if fragment is not None:
                pulling.give(fragment)

    def _pull(self, pulling: Pulling, wanted: Wanted) -> Frame:
        return frame(Pull(self.incarnation, pulling.restore.task, *wanted))

    def _load(self) -> bool:
        """Decode and load what has arrived, for one slice; True if there was any."""
        start_s = self.clock()
        worked = False
        times = self.recoveries[-1]
        for pulling in self.restoring.values():
            before_s = start_s if not worked else self.clock()
            while (what := pulling.work()) is not None:
                worked = True
                now_s = self.clock()
                if what == DECODE:
                    times.decode_s += now_s - before_s
                else:
                    times.load_s += now_s - before_s
                before_s = now_s
                if now_s - start_s >= self.limits.slice_s:
                    return True
        if times.fetched_s is None and all(pulling.is_fetched for pulling in self.restoring.values()):
            times.fetched_s = start_s
        self._restore_if_complete()
        return worked or not self.restoring

    @abstractmethod
    def _restore_if_complete(self) -> None:
        """Bring the lost tasks back once all of them are loaded."""
