"""The HTML report: one file with everything in it, which opens anywhere and loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rstream.lab.experiment import Check
from rstream.lab.output import levels
from rstream.lab.plots import Line, legend, plot
from rstream.lab.report_assets import SCRIPT, STYLE
from rstream.lab.simulate import Run

# Title, unit, the run's series, and whether it is a staircase.
PLOTS = (
    ("input rate", "tuples/s", "rate", True),
    ("instances (dots: decisions)", "active tasks", "instances", True),
    ("nodes in use (dots: decisions)", "nodes", "nodes", True),
    ("latency", "ms", "latency_ms", False),
    ("utilisation of used nodes (0.5 cpu + 0.35 memory + 0.15 I/O)", "share", "utilisation", False),
    ("throughput", "tuples/s", "throughput", False),
)


def page(
    title: str, subtitle: str, groups: Mapping[str, Sequence[Run]], checks: Sequence[Check], extra: str = ""
) -> str:
    """The whole report. `groups` holds the runs to plot together, by heading; marks are decisions with reasons."""
    body = [f"<h1>{escape(title)}</h1><p>{escape(subtitle)}</p>", extra]
    if checks:
        body.append("<h2>Checks</h2>" + _checks(checks))
    for heading, runs in groups.items():
        body.append(f'<section class="group"><h2>{escape(heading)}</h2>{_overview(runs)}')
        body.append(legend([run.policy for run in runs]) + '<div class="plots">')
        for name, unit, column, steps in PLOTS:
            shown = runs[:1] if column == "rate" else runs
            body.append(plot(name, unit, [_line(run, column) for run in shown], steps=steps))
        body += ["</div>", *(_decisions(run) for run in runs), "</section>"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}<script>{SCRIPT}</script></body></html>\n"
    )


def _overview(runs: Sequence[Run]) -> str:
    """What each policy used and gave, before the plots show when."""
    names = ("policy", "instances", "nodes", "mean latency, ms", "highest, ms", "processed", "decisions", "restarts")
    rows = []
    for run in runs:
        totals = run.totals[0]
        numbers = (
            f"{run.mean('latency_ms'):,.2f}",
            f"{max(run.latency_ms, default=0.0):,.2f}",
            f"{totals.finished / max(totals.offered, 1e-9):.1%}",
            str(len(run.decisions)),
            str(run.restarts),
        )
        text = "".join(f"<td>{escape(cell)}</td>" for cell in (run.policy, levels(run.instances), levels(run.nodes)))
        rows.append(f"<tr>{text}" + "".join(f'<td class="number">{cell}</td>' for cell in numbers) + "</tr>")
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>{''.join(rows)}</table>"


def _line(run: Run, column: str) -> Line:
    values = [float(value) for value in getattr(run, column)]
    marked = column in ("instances", "nodes")
    marks = [(decision.time_s, _summary(decision.reasons)) for decision in run.decisions] if marked else []
    return Line("offered" if column == "rate" else run.policy, run.time_s, values, marks)


def _summary(reasons: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{reason['subject']}: {reason['summary']}" for reason in reasons)


def _checks(checks: Sequence[Check]) -> str:
    rows = "".join(
        f"<tr><td>{escape(c.name)}</td><td>{escape(c.paper)}</td><td>{escape(c.ours)}</td><td>{escape(c.rule)}</td>"
        f'<td class="{c.verdict}">{c.verdict}</td><td>{escape(c.note)}</td></tr>'
        for c in checks
    )
    head = "".join(f"<th>{name}</th>" for name in ("check", "paper", "ours", "rule", "verdict", "note"))
    return f"<table><tr>{head}</tr>{rows}</table>"


def _decisions(run: Run) -> str:
    if not run.decisions:
        return f"<p>{escape(run.policy)} changed nothing.</p>"
    rows = "".join(
        f"<tr><td>{decision.time_s:g}</td><td>{decision.moves}</td><td>{_reasons(decision.reasons)}</td></tr>"
        for decision in run.decisions
    )
    return (
        f"<details><summary>{escape(run.policy)}: {len(run.decisions)} decisions and their reasons</summary>"
        f"<table><tr><th>time, s</th><th>moves</th><th>why</th></tr>{rows}</table></details>"
    )


def _reasons(reasons: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for reason in reasons:
        seen = ", ".join(
            f"{name} {_short(value)}" for name, value in {**reason["inputs"], **reason["forecast"]}.items()
        )
        lost = "; ".join(f"not {other['what']}: {other['why_not']}" for other in reason["alternatives"])
        text = f"<b>{escape(reason['subject'])}</b>: {escape(reason['summary'])}"
        parts.append(text + f"<br><code>{escape(seen)}</code>" + (f"<br><small>{escape(lost)}</small>" if lost else ""))
    return "<br>".join(parts)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
