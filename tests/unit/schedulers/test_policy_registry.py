"""Policies by name: the list, wrong names, wrong parameters, and policies of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from rstream import schedulers
from rstream.errors import PolicyError
from rstream.schedulers import registry


def test_the_names_are_those_of_the_contract() -> None:
    assert schedulers.names()[:11] == (
        "es",
        "ra",
        "psps",
        "me",
        "sl",
        "static",
        "even",
        "rstorm",
        "drs",
        "sp-ant",
        "dabs",
    )


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_every_name_makes_a_policy_of_that_name(name: str) -> None:
    assert schedulers.make(name).name == name


def test_an_unknown_name_is_refused_with_the_list_and_the_nearest() -> None:
    with pytest.raises(
        PolicyError, match=r"unknown policy 'rstrom' \(did you mean 'rstorm'\?\); there are es, ra, psps"
    ):
        schedulers.make("rstrom")


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("es", {"triger": 0.1}, "policy 'es': unknown parameter 'triger'; did you mean 'trigger'?"),
        ("es", {"trigger": -1}, "policy 'es': trigger: Input should be greater than 0, got -1"),
        (
            "psps",
            {"grouping": "random"},
            "policy 'psps': grouping: Input should be 'load_balanced', 'shuffle' or 'keep'",
        ),
        ("ra", {"alpha": 0.9}, "policy 'ra': parameters: alpha + beta and gamma + delta must each be at most 1"),
        ("me", {"phi": float("nan")}, "policy 'me': phi: "),
    ],
)
def test_wrong_parameters_give_one_clear_line(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError) as refused:
        schedulers.make(name, parameters)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_a_package_adds_a_policy_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "rstream.schedulers.static:Static", registry.GROUP)
    monkeypatch.setattr(registry, "_installed", lambda: {"mine": point})
    assert schedulers.names()[-1] == "mine"
    assert schedulers.make("mine", {"replicas": 3}).name == "static"


def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "nowhere.at.all:Policy", registry.GROUP)
    monkeypatch.setattr(registry, "_installed", lambda: {"mine": point})
    with pytest.raises(PolicyError, match=r"policy 'mine': entry point nowhere\.at\.all:Policy cannot be loaded"):
        schedulers.make("mine")


def test_a_built_in_name_cannot_be_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("es", "rstream.schedulers.static:Static", registry.GROUP)
    monkeypatch.setattr(registry, "_installed", lambda: {"es": point})
    assert schedulers.make("es").name == "es"
