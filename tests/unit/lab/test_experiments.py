"""The papers' experiments: their series come from the running policy, and their constants are few and visible."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Mapping

import numpy as np
import pytest

from rstream.errors import UsageError
from rstream.lab import calibration
from rstream.lab.calibration import ALL, Constants
from rstream.lab.catalogue import experiments, find
from rstream.lab.experiment import Figure, Outcome
from rstream.lab.output import levels, result_data
from rstream.lab.plots import Line, plot
from rstream.lab.report import page
from rstream.lab.rows.es import E10_TIMES, totals_at
from rstream.lab.rows.psps import shape
from rstream.lab.rows.ra import TIMES, nodes_at
from rstream.lab.rows.staircase import highest_rate, staircase
from rstream.lab.runner import Job, run_experiment, run_jobs
from rstream.lab.simulate import Run
from rstream.lab.table import document


def first(identity: str, case: str, policy: str) -> list[float]:
    """The series of one policy at the times that the paper states."""
    result = run_experiment(find(identity), [policy], (1,), processes=1)
    measure = totals_at(*E10_TIMES) if identity == "E10" else nodes_at(*TIMES)
    return measure(result.outcome.of(case, policy)[0])


def test_e10_gives_the_papers_instances_and_only_under_its_policy() -> None:
    assert first("E10", "commcount", "es") == [14, 24, 19]
    assert first("E10", "top_n", "es") == [18, 27, 23]
    assert first("E10", "commcount", "static") == [17, 17, 17]
    assert first("E10", "top_n", "static") == [16, 16, 16]


def test_r6_gives_the_papers_nodes_and_only_under_its_policy() -> None:
    assert first("R6", "wordcount", "ra") == [14, 5, 7, 10, 7]
    assert first("R6", "wordcount", "static") == [14, 14, 14, 14, 14]


def test_no_topology_has_more_than_four_calibrated_constants() -> None:
    pairs = [(constants.paper, constants.topology) for constants in ALL]
    assert len(set(pairs)) == len(pairs)
    assert all(len(constants.values) <= 4 for constants in ALL)


def numbers(node: ast.AST) -> set[float]:
    return {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, int | float) and not isinstance(each.value, bool)
    }


def test_every_number_of_the_file_of_constants_is_counted_or_says_who_states_it() -> None:
    tree = ast.parse(inspect.getsource(calibration))
    named: dict[str, ast.expr] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and numbers(statement.value):
            (target,) = statement.targets
            names = [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]
            named |= dict.fromkeys(names, statement.value)
    counted = {name for name in named if isinstance(getattr(calibration, name), Constants)}
    assert set(named) - counted - {"TIERS"} == set(calibration.GIVEN)
    for name in counted:
        call = named[name]
        assert isinstance(call, ast.Call)
        assert numbers(call) == numbers(call.args[2]), f"{name} has numbers beside its values"


MODELS = (
    "ClusterSpec",
    "OperatorSpec",
    "EdgeSpec",
    "TopologySpec",
    "Application",
    "Tier",
    "ChangeCosts",
    "Trace",
    "_operator",
)
# Section 0 and 1 of the experiments, and settings that the papers state: sizes of clusters, DAGs, runs and figures.
STATED: Mapping[str, set[float]] = {
    "es": {13, 15.0},
    "ra": {14, 2, 3, 4},  # the last is DEBS's three whole and four half operators
    "psps": {7, 8, 7.2, 2, 30, 2e9, 32, 40, 12, 4, 3, 5, 6, 1e-6},
    "me": {25},
    "sl": {10, 4, 8, 3},
}


def test_no_model_of_a_paper_has_a_number_of_its_own() -> None:
    for paper, stated in STATED.items():
        tree = ast.parse(inspect.getsource(importlib.import_module(f"rstream.lab.rows.{paper}")))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        for call in calls:
            if isinstance(call.func, ast.Name) and call.func.id in MODELS:
                given = set().union(*(numbers(part) for part in (*call.args, *(word.value for word in call.keywords))))
                assert given <= stated | {0, 1}, f"{paper}: {ast.unparse(call)}"


def test_four_replicas_are_too_few_for_200_s_around_each_peak_of_the_lower_two() -> None:
    queue, full = 0.0, []
    for time_s, level in enumerate(shape(np.arange(0.0, 800.0), 1.0, 8.0)):
        queue = max(0.0, queue + level - 4.0)
        full += [time_s] if queue > 0.0 else []
    assert full == [*range(121, 320), *range(421, 618)]


def test_a_limit_at_the_top_of_the_staircase_is_called_a_lower_bound() -> None:
    run = Run("es", 1, time_s=[0.0], rate=[2000.0], queued=[0.0], backlog=[0.0])
    outcome = Outcome({("t", "es"): [run], ("t", "even"): [run]})
    check = highest_rate("t", "es", ("even",), 2000.0)(outcome)
    assert check.ours == "es 0; even 0"
    stairs = staircase(1000.0)
    times = [float(at) for at in range(int(stairs.end_s))]
    run = Run("es", 1, time_s=times, rate=[stairs.at(t) for t in times], queued=[0.0] * 180, backlog=[0.0] * 180)
    outcome = Outcome({("t", "es"): [run], ("t", "even"): [run]})
    assert highest_rate("t", "es", ("even",), 2000.0)(outcome).ours == "es at least 1000; even at least 1000"


def test_the_bar_moves_within_a_run() -> None:
    (case,) = find("R6").chosen(["static"])
    heard: list[float] = []
    run_jobs([Job(case, case.controls[0], 1)], done=lambda finished, total: heard.append(finished))
    assert heard == sorted(heard)
    assert sum(0.0 < part < 1.0 for part in heard) > 100
    assert heard[-1] == 1.0


def test_every_row_that_a_model_can_show_is_there() -> None:
    wanted = {*(f"E{n}" for n in range(1, 12)), *(f"R{n}" for n in range(1, 9)), *(f"S{n}" for n in range(1, 5))}
    wanted |= {*(f"M{n}" for n in range(1, 6)), "P0", "P4", "P7", "P10", "P11", "P12"}
    wanted |= {f"P{n}{letter}" for n in (1, 2, 3, 5) for letter in "abc"} | {
        f"P{n}{x}" for n in (6, 8, 9) for x in "ab"
    }
    assert set(experiments()) == wanted


@pytest.mark.parametrize("identity", ["P10", "P11", "P12", "M4", "M5"])
def test_worked_examples_are_exact(identity: str) -> None:
    checks = find(identity).judge(Outcome())
    assert [check.verdict for check in checks] == ["pass"]


def test_a_check_without_its_policy_is_left_out_not_failed() -> None:
    result = run_experiment(find("E10"), ["static"], (1,), processes=1)
    assert result.checks == []
    assert {series["policy"] for series in result_data(result)["series"]} == {"static"}


def test_every_experiment_is_found_in_any_case_of_letters() -> None:
    for identity in experiments():
        assert find(identity.lower()) is find(identity.upper()) is experiments()[identity]


def test_an_unknown_experiment_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no experiment 'E100' \(did you mean E10\?\); there are E1, "):
        find("E100")


def test_a_table_of_several_rows_names_them() -> None:
    with pytest.raises(UsageError, match=r"did you mean P1a or P1b or P1c\?"):
        find("P1")


def test_a_figure_shows_median_and_extremes() -> None:
    assert Figure.of([5, 1, 3]) == Figure(3, 1, 5)
    assert levels([1, 1, 2, 1]) == "1 -> 2 -> 1"


def test_a_plot_has_one_line_per_series_and_a_mark_per_decision() -> None:
    svg = plot("t", "ms", [Line("a", [0, 1], [1, 2], [(1, "why & how")]), Line("b", [0, 1], [0, 0])])
    assert svg.count("<polyline") == 2
    assert svg.count('class="mark"') == 1
    assert "why &amp; how" in svg


def test_the_report_loads_nothing_from_elsewhere() -> None:
    result = run_experiment(find("E10"), ["static"], (1,), processes=1)
    html = page("t", "s", {case: runs for (case, _), runs in result.outcome.runs.items()}, [])
    assert "http" not in html
    assert "src=" not in html
    assert "import" not in html
    assert html.count("<svg") == 12


def test_the_report_opens_with_what_each_policy_used_and_gave() -> None:
    result = run_experiment(find("E10"), ["static"], (1,), processes=1)
    html = page("t", "s", {case: runs for (case, _), runs in result.outcome.runs.items()}, [])
    assert "<td>static</td><td>17</td><td>13</td>" in html
    assert html.count('<span data-of="static">') == 2  # one legend per topology
    assert html.count('data-of="static"') == 2 + 2 * 5  # and one line in every plot but the input's


def test_the_page_of_results_keeps_misses_visible() -> None:
    row = {"name": "n", "paper": "1", "ours": "2", "ratio": 2.0, "rule": "r", "verdict": "fail", "note": "why"}
    text = document({"E5": [row]})
    assert "0 checks pass, 1 fail" in text
    assert "Not run for this page: E1, " in text
    assert "| E5 | n | 1 | 2 | 2.00 | r | **fail** | why |" in text
