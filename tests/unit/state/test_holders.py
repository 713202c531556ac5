"""Holders are near, apart, and enough: what the layout promises to survive is survived."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from random import Random

from rstream.state.erasure import Label, decode, encode
from rstream.state.holders import Layout, choose_holders, combined, domains, rehome, survival


def placed(**workers_by_node: str) -> dict[str, str]:
    return {worker: node for node, workers in workers_by_node.items() for worker in workers.split()}


def test_the_upstream_operator_holds_first_and_the_first_operator_asks_the_last() -> None:
    nodes = placed(n1="a d", n2="b e", n3="c f")
    ring = [["a", "b"], ["c", "d"], ["e", "f"]]
    assert choose_holders("d", ring, 1, placed(n1="d", n2="a", n3="b")).holders == ("a", "b")
    assert set(choose_holders("a", ring, 0, nodes).holders) == {"e", "f"}
    assert choose_holders("f", ring, 2, nodes).holders == ("d", "b")


def test_where_upstream_is_too_few_the_operators_before_fill_up() -> None:
    nodes = placed(n1="sink", n2="mid", n3="src1 src2")
    layout = choose_holders("sink", [["src1", "src2"], ["mid"], ["sink"]], 2, nodes)
    assert layout.holders == ("mid", "src1")
    assert layout.survives.any_domain


def test_another_node_comes_before_the_own_one() -> None:
    nodes = placed(n1="t near1 near2", n2="far1 far2")
    layout = choose_holders("t", [["near1", "near2", "far1", "far2"], ["t"]], 1, nodes)
    assert set(layout.holders) == {"far1", "far2"}
    assert (layout.r, layout.c) == (1, 1)
    assert layout.survives.own_domain
    assert not layout.survives.any_domain


def test_on_one_node_every_worker_is_a_domain_of_its_own() -> None:
    layout = choose_holders("t", [["a", "b", "c", "d"], ["t"]], 1, placed(n1="t a b c d"))
    assert (layout.holders, layout.r, layout.c) == (("a", "b", "c", "d"), 3, 1)
    assert layout.survives.any_domain


def test_one_far_worker_gets_a_partner_at_home() -> None:
    layout = choose_holders("t", [["near", "far"], ["t"]], 1, placed(n1="t near", n2="far"))
    assert (layout.holders, layout.r, layout.c) == (("far", "near"), 1, 1)
    assert layout.survives.any_domain


def test_one_possible_holder_is_a_copy_with_a_warning_and_none_is_said_so() -> None:
    one = choose_holders("t", [["a"], ["t"]], 1, placed(n1="t a"))
    assert (one.holders, one.r, one.c, one.survives.holders) == (("a",), 1, 0, 0)
    assert "one holder only (a), a plain copy" in one.warning
    none = choose_holders("t", [["t"]], 0, placed(n1="t"))
    assert (none.holders, none.survives.holders) == ((), -1)
    assert "no other worker" in none.warning


def test_holders_that_only_crowd_a_domain_are_left_out() -> None:
    nodes = placed(n1="t", n2="a b c d e f", n3="g")
    layout = choose_holders("t", [["a", "b", "c", "d", "e", "f", "g"], ["t"]], 1, nodes)
    assert (layout.holders, layout.r, layout.c) == (("a", "g"), 1, 1)


def test_a_fixed_number_of_check_fragments_is_taken_as_it_is() -> None:
    nodes = placed(n1="t", n2="a b c d", n3="e f g h i j k l")
    ring = [[*"abcdefghijkl"], ["t"]]
    paper = choose_holders("t", ring, 1, nodes, check=3)
    assert (len(paper.holders), paper.r, paper.c) == (10, 7, 3)
    assert not paper.survives.any_domain
    assert choose_holders("t", ring, 1, nodes, check=50).r == 1


def test_every_layout_survives_exactly_what_it_promises() -> None:
    random = Random(5)
    for _ in range(150):
        nodes = {f"w{number}": f"n{random.randrange(4)}" for number in range(random.randrange(2, 14))}
        ring = [random.sample(sorted(nodes), random.randrange(1, len(nodes))) for _ in range(3)]
        worker = random.choice(sorted(nodes))
        check = random.choice([None, None, None, 0, 2])
        layout = choose_holders(worker, ring, random.randrange(3), nodes, check)
        assert worker not in layout.holders
        assert 1 <= len(set(layout.holders)) == len(layout.holders) == layout.r + layout.c <= 10
        domain_of = domains(nodes)
        _promises_hold(layout, domain_of)
        if check is None:
            assert layout.survives.own_domain
            foreign = {domain for each, domain in domain_of.items() if domain != domain_of[worker]}
            assert layout.survives.any_domain or len(foreign) == 1


def _promises_hold(layout: Layout, domain_of: Mapping[str, str]) -> None:
    fragments = encode(b"state" * 20, layout.r, layout.c, Label("t/0", (1, 1)))
    home = dict(zip(layout.holders, fragments, strict=True))

    def recovers(lost: set[str]) -> bool:
        left = [fragment for holder, fragment in home.items() if holder not in lost]
        return len(left) >= layout.r and decode(left) == b"state" * 20

    promise = layout.survives
    some = list(combinations(layout.holders, promise.holders))[:40]
    assert all(recovers(set(lost)) for lost in some)
    assert not any(recovers({*lost, next(h for h in layout.holders if h not in lost)}) for lost in some)
    by_domain = {
        domain: recovers({h for h in home if domain_of[h] == domain}) for domain in {domain_of[h] for h in home}
    }
    assert promise.own_domain == by_domain.get(domain_of[layout.worker], True)
    assert promise.any_domain == all(by_domain.values())


def test_fragments_of_a_leaving_holder_find_a_home_that_keeps_the_promise() -> None:
    nodes = placed(n1="t", n2="a b", n3="c d", n4="e f")
    ring = [["a", "c", "e"], ["t"]]
    layout = choose_holders("t", ring, 1, nodes)
    assert (set(layout.holders), layout.r, layout.c) == ({"a", "c", "e"}, 2, 1)
    after, moves = rehome(layout, ["c"], ring, 1, nodes)
    assert moves == [(1, "c", "d")]
    assert after.holders == ("a", "d", "e")
    assert after.survives == layout.survives
    after, moves = rehome(layout, ["c", "d"], ring, 1, nodes)
    assert [(index, old) for index, old, _ in moves] == [(1, "c")]
    assert not after.survives.any_domain
    assert after.survives.holders == 1


def test_two_that_leave_together_are_not_replaced_in_one_domain() -> None:
    nodes = placed(n1="t", n2="a", n3="b", n4="c", n5="d e", n6="f")
    ring = [["a", "b", "c"], ["t"]]
    layout = choose_holders("t", ring, 1, nodes)
    after, moves = rehome(layout, ["a", "b"], ring, 1, nodes)
    assert [(index, old) for index, old, _ in moves] == [(0, "a"), (1, "b")]
    assert {new for _, _, new in moves} == {"d", "f"}
    assert after.survives.any_domain


def test_a_fragment_without_a_home_is_missing_from_what_is_survived() -> None:
    nodes = placed(n1="t", n2="a", n3="b")
    layout = choose_holders("t", [["a", "b"], ["t"]], 1, nodes)
    after, moves = rehome(layout, ["b"], [["a", "b"], ["t"]], 1, nodes)
    assert moves == []
    assert after.holders == ("a", "")
    assert after.survives.holders == 0


def test_a_topology_survives_what_each_of_its_tasks_does() -> None:
    domain_of = {"t": "n1", "a": "n1", "b": "n2", "c": "n3"}
    strong = survival("t", ["b", "c"], 1, domain_of)
    weak = survival("t", ["a"], 1, domain_of)
    both = combined([strong, weak])
    assert (strong.any_domain, weak.own_domain) == (True, False)
    assert both is not None
    assert (both.holders, both.own_domain) == (0, False)
    assert str(both) == "the task, with all holders alive; not its whole domain"
    assert combined([]) is None
