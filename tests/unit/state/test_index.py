"""The prefix tree finds exactly what was put in, level by level."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rstream.state.index import PrefixTree

PARTS = st.sampled_from(["a", "b", "ab", ""])
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


@given(st.dictionaries(PATHS, st.integers()), st.lists(PATHS))
def test_it_answers_as_a_dict_of_whole_paths_does(wanted: dict[str, int], queries: list[str]) -> None:
    tree = PrefixTree[int]()
    for path, value in wanted.items():
        tree.put(path, value)
    for query in [*wanted, *queries]:
        assert tree.get(query) == wanted.get(query)
    assert len(tree) == len(wanted)
    for path in [*queries, *wanted]:
        assert tree.remove(path) == wanted.pop(path, None)
        assert all(tree.get(other) == value for other, value in wanted.items())
    assert tree._root.children == {}


def test_a_name_that_begins_like_another_is_another() -> None:
    tree = PrefixTree[int]()
    tree.put("shop/count/1", 1)
    tree.put("shop/counter/1", 2)
    assert list(tree.under("shop/count")) == [("shop/count/1", 1)]
    assert list(tree.under("nowhere")) == []
