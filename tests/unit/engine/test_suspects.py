"""Who is replaced without a proof of death, and when: in virtual time."""

from __future__ import annotations

from rstream.core.suspects import HEARTBEAT_TIMEOUT_S, Suspects

NODES = {"t/a": "n1", "t/b": "n2", "t/c": "n2", "other/d": "n2"}
LEASE_S = 10.0


def followed(at_s: float = 0.0) -> Suspects:
    suspects = Suspects()
    for worker in NODES:
        suspects.follow(worker, LEASE_S, 0.5, at_s)
    return suspects


def hear(suspects: Suspects, now_s: float, *workers: str) -> None:
    for worker in workers:
        assert suspects.heard(worker, now_s)


def test_a_worker_that_ray_has_given_up_is_replaced_when_its_lease_is_over_and_not_before() -> None:
    suspects = followed()
    hear(suspects, 3.0, *NODES)
    suspects.lost("t/a")
    assert suspects.doubted == {"t/a"}
    assert suspects.due(12.9, NODES) == []
    assert suspects.due(13.0, NODES) == ["t/a"]
    assert suspects.due(14.0, NODES) == [], "once is enough"


def test_a_worker_that_ray_has_given_up_gets_no_lease_any_more() -> None:
    suspects = followed()
    suspects.lost("t/a")
    assert not suspects.heard("t/a", 9.0), "it is to be told to leave"
    assert suspects.due(10.0, NODES) == ["t/a"]


def test_silence_is_suspected_after_the_heartbeat_timeout_and_acted_on_after_the_lease() -> None:
    suspects = followed()
    hear(suspects, 1.0, "t/b")
    hear(suspects, 9.0, "t/a")
    assert suspects.to_knock_at(HEARTBEAT_TIMEOUT_S) == ["t/c"]
    assert suspects.due(50.0, NODES) == []
    suspects.knocked("t/c", answers=False)
    suspects.knocked("t/b", answers=False)
    assert suspects.due(10.9, NODES) == [], "what is on one node is due together"
    assert suspects.due(11.0, NODES) == ["t/b", "t/c"]
    assert not suspects.heard("t/b", 11.1), "its tasks are somebody else's now"


def test_a_worker_that_is_silent_and_answers_a_knock_is_never_replaced() -> None:
    suspects = followed()
    suspects.knocked("t/b", answers=False)
    for now_s in range(1, 60):
        hear(suspects, now_s, "t/a")
        if "t/b" in suspects.to_knock_at(now_s):
            suspects.knocked("t/b", answers=True)
        assert suspects.due(now_s, NODES) == []
    assert suspects.doubted == set()


def test_a_worker_that_is_heard_of_again_is_trusted_again() -> None:
    suspects = followed()
    hear(suspects, 7.0, "t/a", "t/c")
    suspects.knocked("t/b", answers=False)
    assert suspects.doubted == {"t/b"}
    hear(suspects, 9.0, "t/b")
    assert suspects.doubted == set()
    assert suspects.due(11.0, NODES) == []


def test_where_all_are_silent_nobody_is_suspected_for_it_may_be_the_coordinator_that_is_cut_off() -> None:
    suspects = followed()
    hear(suspects, 50.0, "other/d")
    for worker in ("t/a", "t/b", "t/c"):
        suspects.knocked(worker, answers=False)
    assert suspects.to_knock_at(50.0) == []
    assert suspects.due(50.0, NODES) == []


def test_those_that_ray_has_given_up_do_not_count_as_others_that_report() -> None:
    suspects = followed()
    hear(suspects, 8.0, "t/a")
    suspects.lost("t/a")
    suspects.knocked("t/b", answers=False)
    assert suspects.to_knock_at(11.0) == ["t/a"]
    assert suspects.due(11.0, NODES) == []


def test_a_worker_that_reports_seldom_is_given_more_time() -> None:
    suspects = Suspects()
    suspects.follow("t/a", LEASE_S, 20.0, 0.0)
    suspects.follow("t/b", LEASE_S, 20.0, 30.0)
    assert suspects.to_knock_at(59.9) == []
    assert suspects.to_knock_at(60.0) == ["t/a"]


def test_a_worker_that_was_replaced_or_told_to_end_is_forgotten() -> None:
    suspects = followed()
    suspects.lost("t/a")
    suspects.forget("t/a")
    assert suspects.due(100.0, NODES) == []
    assert suspects.heard("t/a", 1.0), "whether it is wanted is not for suspicion to say"
    suspects.lost("t/nobody")
    suspects.knocked("t/nobody", answers=False)
    assert suspects.doubted == set()
