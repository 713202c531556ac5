"""Every benchmark prints the object that DESIGN promises, measures equal work, and says so when it cannot measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as every
from benchmarks import common, elastic, latency, recovery, rescale, startup, stateful, throughput, tiers, varying
from benchmarks.common import CannotMeasure, Goal, Outcome
from benchmarks.corpus import Corpus
from benchmarks.paced import CORPUS as CORPUS_OF_LATENCY
from benchmarks.paced import Notes, Pacer, goes_to_second, latencies, split
from benchmarks.throughput import Rate
from rstream import Topology
from rstream.clock import ManualClock
from rstream.errors import RunError
from rstream.keys import KeyRanges, slot_of
from rstream.runtime.embedded import Embedded
from rstream.schedulers import registry

CORPUS = Corpus(sentences=2000, vocabulary=300)
FIGURES = {"p50_ms": 0.2, "p95_ms": 0.4, "p99_ms": 0.9, "due_p50_ms": 0.5}


def outcomes() -> dict[str, Outcome]:
    rates = {case: [Rate(2e6, 2e6), Rate(1e6, 1e6), Rate(3e6, 3e6)] for case in throughput.CASES}
    cases = (latency.THREAD, latency.PROCESS, latency.NODE, latency.BYTEWAX_1, latency.BYTEWAX_2, latency.PIPE)
    trips = {
        tier: [{"p50_ms": at, "p95_ms": at, "p99_ms": at}]
        for tier, at in zip(tiers.TIERS, (1.0, 2.0, 4.0), strict=True)
    }
    starts = {case: [{"first_result_s": 1.0, "end_s": 2.0}] for case in ("python -c pass", "rstream run --local")}
    return {
        "throughput": throughput.outcome({throughput.BARE: [Rate(4e6, 4e6)] * 3, **rates}, CORPUS),
        "latency": latency.outcome({case: [FIGURES] for case in cases}, 5.0),
        "tiers": tiers.outcome({tier: [cost] for tier, cost in zip(tiers.TIERS, (0.1, 0.3, 0.6), strict=True)}, trips),
        "startup": startup.outcome(starts, {"rss_mb": 150.0, "pss_mb": 70.0}),
        "recovery": recovery.outcome(recoveries()),
        "rescale": rescale.outcome(
            {"live": [rescaled("live", 2.0, 30.0)], "restart": [rescaled("restart", 8.0, 900.0)]}
        ),
        "elastic": elastic.outcome(elastic_rows()),
    }


def elastic_rows(ra_p50_ms: float = 10.0) -> list[dict[str, Any]]:
    """es has a fourth of static's p99, dabs lost half, ra has half of even's nodes, a restart stalls ten times."""
    row = {"p50_ms": 10.0, "p99_ms": 100.0, "processed": 1.0, "lost": 0, "nodes": 4.0, "stall_ms": None}
    return [
        {**row, "profile": "E10", "case": "static", "p99_ms": 400.0},
        {**row, "profile": "E10", "case": "es"},
        {**row, "profile": "R6", "case": "even"},
        {**row, "profile": "R6", "case": "ra", "nodes": 2.0, "p50_ms": ra_p50_ms},
        {**row, "profile": "P0", "case": "psps"},
        {**row, "profile": "P0", "case": "dabs", "processed": 0.5, "lost": 50},
        {"profile": "stall", "case": "live", "stall_ms": 100.0},
        {"profile": "stall", "case": "restart", "stall_ms": 1000.0},
    ]


def rescaled(way: str, repartition_s: float, unmoved_ms: float) -> dict[str, Any]:
    times = {"change_s": 1.0, "delayed_s": 2.0, "repartition_s": repartition_s, "processes_s": 0.0}
    waits = {"unmoved_before_ms": 20.0, "unmoved_during_ms": unmoved_ms, "moved_during_ms": 900.0}
    return {"way": way, "state_mb": 42.0, **times, **waits}


def recoveries() -> list[dict[str, Any]]:
    """Upstream takes 1 s with the cap and checkpoints 4, and both the same without; the larger state counts in S5."""
    rows: list[dict[str, Any]] = []
    for experiment, state_mb, upstream_s in (("E15", 42.0, 1.0), ("S5", 40.0, 4.0), ("S5", 200.0, 2.0)):
        for backend, recovery_s in (("upstream", upstream_s), ("checkpoint", 4.0)):
            row = {"experiment": experiment, "backend": backend, "state_mb": state_mb, "interval_s": 2.0}
            rows += [{**row, "mb_per_s": 12.5, "recovery_s": recovery_s}, {**row, "mb_per_s": None, "recovery_s": 3.0}]
    rates = {"at_most_once": 1000.0, "exactly_once": 900.0}
    return rows + [{"experiment": "share", "delivery": mode, "words_per_s": rates[mode]} for mode in rates]


@pytest.mark.parametrize("name", ["throughput", "latency", "tiers", "startup", "recovery", "rescale", "elastic"])
def test_the_object_has_benchmark_results_and_goals(name: str) -> None:
    printed = json.loads(json.dumps(outcomes()[name].as_json()))
    assert printed["benchmark"] == name
    assert printed["results"]
    assert all(set(goal) == {"name", "value", "goal", "met"} for goal in printed["goals"])


def test_the_goals_have_the_names_and_limits_of_the_design() -> None:
    goals = {goal.name: goal.goal for outcome in outcomes().values() for goal in outcome.goals}
    assert goals == {
        "per_record": ">= 0.25",
        "batch": ">= 0.50",
        "thread_p50_vs_bytewax": "<= 1",
        "process_p50_vs_bytewax": "<= 1",
        "process_over_thread": "> 1",
        "node_over_process": "> 1",
        "e15_ratio": "<= 0.45",
        "s5_200mb_ratio": "<= 0.83",
        "exactly_once_share": ">= 0.80",
        "unmoved_p99_ratio": "<= 1.5",
        "repartition_ratio": "<= 0.38",
        "es_p99_vs_static": "< 1",
        "psps_lost": "= 0",
        "psps_processed_vs_dabs": "> 1",
        "ra_nodes_vs_even": "< 1",
        "moved_stall_vs_restart": "<= 0.2",
    }


def test_ratios_are_of_medians_to_the_reference_of_the_same_run() -> None:
    values = {goal.name: goal.value for outcome in outcomes().values() for goal in outcome.goals}
    assert values["per_record"] == 0.5
    assert values["process_over_thread"] == 2.0
    assert values["node_over_process"] == 2.0
    assert (values["e15_ratio"], values["s5_200mb_ratio"], values["exactly_once_share"]) == (0.25, 0.5, 0.9)
    assert (values["unmoved_p99_ratio"], values["repartition_ratio"]) == (1.5, 0.25)
    assert (values["es_p99_vs_static"], values["psps_lost"], values["psps_processed_vs_dabs"]) == (0.25, 0, 2.0)
    assert (values["ra_nodes_vs_even"], values["moved_stall_vs_restart"]) == (0.5, 0.1)


@pytest.mark.parametrize(
    ("value", "goal", "met"), [(0.25, ">= 0.25", True), (1.0, "> 1", False), (1.01, "<= 1", False)]
)
def test_a_goal_is_met_by_its_own_comparison(value: float, goal: str, met: bool) -> None:
    assert Goal("any", value, goal).met is met


@pytest.mark.parametrize(("ra_p50_ms", "met"), [(10.9, True), (12.0, False)])
def test_fewer_nodes_count_only_at_equal_latency_or_better(ra_p50_ms: float, met: bool) -> None:
    (goal,) = [each for each in elastic.outcome(elastic_rows(ra_p50_ms)).goals if each.name == "ra_nodes_vs_even"]
    assert goal.met is met


def test_the_tables_name_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes()["throughput"].show()
    printed = capsys.readouterr().out
    assert all(case in printed for case in throughput.CASES)


@pytest.mark.parametrize("error", [CannotMeasure("no machine"), RunError("a worker died")])
def test_what_cannot_be_measured_ends_with_status_1_and_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(_: Any) -> Outcome:
        raise error

    assert common.finish(common.parser("").parse_args(["--json"]), "any", measure) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"benchmark any: could not measure: {error}\n"


def test_a_missed_goal_ends_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    missed = Outcome("any", [{"case": "one"}], [Goal("speed", 0.1, ">= 1")])
    assert common.finish(common.parser("").parse_args(["--json"]), "any", lambda _: missed) == 0
    assert json.loads(capsys.readouterr().out)["goals"][0]["met"] is False


def test_the_runner_finds_the_programs_and_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    found = every.programs()
    assert {"throughput", "latency", "tiers", "startup", "rescale", "elastic"} <= set(found)
    assert not {"common", "corpus", "paced", "bytewax_flow", "stateful", "failing", "varying"} & set(found)
    assert every.main(["no-such-one"]) == 2
    assert "there are:" in capsys.readouterr().err


@pytest.mark.parametrize("build", [throughput.per_record, throughput.batched, throughput.combined])
def test_every_variant_counts_what_an_independent_count_finds(build: Any) -> None:
    host = run_embedded(build(CORPUS, 2))
    throughput.check(host.results("latest"), CORPUS, CORPUS.counts())


@pytest.mark.parametrize("build", [throughput.per_record, throughput.batched])
def test_every_word_is_a_tuple_at_count_and_an_update_at_the_sink(build: Any) -> None:
    operators = {operator["name"]: operator for operator in run_embedded(build(CORPUS, 2)).status()["operators"]}
    assert operators["count"]["processed"] == CORPUS.words
    assert operators["latest"]["processed"] == CORPUS.words


def test_a_wrong_count_is_no_measurement() -> None:
    wanted = CORPUS.counts()
    wrong = {**wanted, next(iter(wanted)): 1}
    with pytest.raises(RunError, match="wrong count"):
        throughput.check([{"latest": wrong, "updates": CORPUS.words}], CORPUS, wanted)
    with pytest.raises(RunError, match="updates at the sink"):
        throughput.check([{"latest": wanted, "updates": CORPUS.words - 1}], CORPUS, wanted)


def test_the_bare_loop_counts_the_same() -> None:
    assert throughput.bare_loop(CORPUS.text(), CORPUS, CORPUS.counts()).per_s > 0


def test_the_steady_rate_leaves_out_a_slow_start_and_end() -> None:
    slow_ends = [(0.0, 0.0, 0), (100.0, 1.0, 10), (108.0, 2.0, 90), (200.0, 3.0, 100)]
    assert throughput.steady([slow_ends], 100) == Rate(10.0, 80.0)


def test_the_text_is_the_same_however_it_is_shared_out() -> None:
    assert sorted(CORPUS.text(0, 2) + CORPUS.text(1, 2)) == sorted(CORPUS.text())


def test_all_words_of_the_latency_benchmark_go_to_the_second_worker() -> None:
    graph = latency.topology(2, 1000.0, 0.01).build()
    host = Embedded(graph, workers=2)
    words = {word for word, _, _ in split((0.0, 0.0, " ".join(CORPUS_OF_LATENCY.text())))}
    assert all(map(goes_to_second, words))
    assert [str(id) for id, worker in host.deployment.placement.items() if worker.endswith("w1")] == [
        "count#1",
        "notes#1",
    ]


def test_the_rescale_benchmark_tells_keys_that_move_from_those_that_stay_as_the_engine_does() -> None:
    keys = list(range(2000))
    live, restart = (rescale.moved(keys, rescale.FIRST, way.after) for way in rescale.WAYS)
    assert sum(live) / len(keys) == pytest.approx(1 - rescale.FROM / rescale.TO, abs=0.05)
    assert sum(restart) > sum(live), "who shares out anew moves more"
    first = KeyRanges.even(rescale.FROM)
    stays = [key for key, moves in zip(keys, live, strict=True) if not moves]
    assert {first.owner(slot_of(key)) for key in stays} == {0, 1}


@pytest.mark.parametrize("part", varying.PROFILES)
def test_the_profiles_of_the_elastic_benchmark_count_what_an_independent_count_finds(part: str, tmp_path: Path) -> None:
    profile = varying.PROFILES[part](True)
    trace = varying.Trace(tmp_path / "gate", [(0.2, 100.0), (0.1, 30.0)])
    clock = ManualClock()
    trace.begin(clock.now())
    host = Embedded(profile.build(part, trace, tmp_path / "arrivals", profile.sizes).build(), workers=2, clock=clock)
    host.run()
    arrived = stateful.read_arrivals(tmp_path / "arrivals")
    assert sorted(arrived) == list(range(trace.limit)) == list(range(23))
    assert host.results("arrivals") == [profile.truth(arrived)]


def test_every_policy_has_its_turn_in_the_full_form_of_the_elastic_benchmark() -> None:
    assert set(registry.names()) >= elastic.PARAMETERS.keys()
    quick = {case.partition(",")[0] for cases in elastic.QUICK.values() for case in cases}
    assert quick <= set(registry.names())


def test_a_pacer_gives_out_each_sentence_once_and_ends() -> None:
    pacer = Pacer(per_s=1e9, seconds=5e-9)
    assert len(pacer.take(2)) <= 2
    while not pacer.ended:
        pacer.take(10)
    assert pacer.given == pacer.total == 5


def test_latencies_of_a_run_that_lost_updates_are_refused() -> None:
    notes = Notes()
    notes.note("a", 1, 0.0, 0.0)
    with pytest.raises(CannotMeasure, match="20 updates were due"):
        latencies([notes.packed()], per_s=1.0, seconds=2.0)


def run_embedded(topology: Topology) -> Embedded:
    host = Embedded(topology.build(), workers=2, clock=ManualClock())
    host.run()
    return host
