"""A process is gone once it has ended, also before anybody has waited for it; one that lives is not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from rstream.runtime.death_watch import DoubtfulNodes, is_gone, peer_pid


def test_a_process_is_gone_when_it_has_ended_and_not_before() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert not is_gone(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(child.pid), "it has ended, and nobody has taken its status yet"
    assert is_gone(child.pid)


def test_the_other_end_of_a_unix_socket_is_known_by_its_process() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_pid(one) == os.getpid()


def test_a_topology_that_does_without_a_node_can_be_told_why() -> None:
    doubtful = DoubtfulNodes()
    assert doubtful.why() == []
    doubtful.add("n1")
    assert doubtful.why() == ["node n1 lost several workers at once just now: it is avoided"]
