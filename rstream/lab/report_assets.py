"""The report's style and its one script, kept in the page itself: it opens anywhere and loads nothing.

Without scripts the page is complete; with them a line follows the pointer through all plots of a topology and says what
each policy had at that moment, and a click on a policy's name takes it out of the plots.
"""

STYLE = """
:root{--ink:#222;--soft:#666;--line:#e4e4e4;--paper:#fff;--panel:#f6f7f9}
@media (prefers-color-scheme:dark){:root{--ink:#e6e6e6;--soft:#9aa0a6;--line:#33373d;--paper:#16181c;--panel:#1f2329}}
body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1500px;color:var(--ink);background:var(--paper);
padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:.2rem}h2{margin-top:2.2rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;width:100%;font-size:13px;margin:.6rem 0}td,th{border-bottom:1px solid var(--line);
padding:4px 8px;text-align:left;vertical-align:top}th{background:var(--panel);font-weight:600}
td.number{text-align:right;font-variant-numeric:tabular-nums}
.pass{color:#1a8a3a}.fail{color:#d0342c;font-weight:600}.fitted{color:#a07d00}
.plots{display:grid;grid-template-columns:1fr;gap:.4rem 1.4rem}
@media (min-width:1250px){.plots{grid-template-columns:1fr 1fr}}
svg.plot{width:100%;height:auto;display:block}.grid{stroke:var(--line)}.tick{font-size:11px;fill:var(--soft)}
.title{font-size:13px;font-weight:600;fill:var(--ink)}.readout{font-size:11px;fill:var(--ink)}
.cursor{stroke:var(--soft);stroke-dasharray:3 3;visibility:hidden}.mark{stroke:var(--paper);stroke-width:.7}
.legend{position:sticky;top:0;background:var(--paper);padding:.5rem 0;z-index:1}
.legend span{margin-right:1.4em;font-size:13px;cursor:pointer}.legend span.off{opacity:.35}
.legend i{display:inline-block;width:14px;height:4px;border-radius:2px;margin-right:6px;vertical-align:middle}
details{margin:.4em 0}summary{cursor:pointer}code{font-size:12px;color:var(--soft);word-break:break-word}
"""

SCRIPT = """
for (const group of document.querySelectorAll("section.group")) {
  const plots = [...group.querySelectorAll("svg.plot")];
  for (const name of group.querySelectorAll(".legend span")) name.onclick = () => {
    const off = name.classList.toggle("off");
    for (const part of group.querySelectorAll(`[data-of="${name.dataset.of}"]`))
      if (part !== name) part.style.display = off ? "none" : "";
  };
  const read = (svg, x) => [...svg.querySelectorAll("polyline")].filter(l => l.style.display !== "none").map(line => {
    let y = null;
    for (const point of line.points) { if (point.x > x + .05 && y !== null) break; y = point.y; }
    const {bottom, span, top} = svg.dataset;
    return line.dataset.of + " " + Number(((bottom - y) / span * top).toPrecision(4));
  }).join("   ");
  const show = event => {
    const box = event.currentTarget.getBoundingClientRect(), width = event.currentTarget.viewBox.baseVal.width;
    const {left, right} = event.currentTarget.dataset;
    const x = Math.min(right, Math.max(left, (event.clientX - box.left) / box.width * width));
    for (const svg of plots) {
      const cursor = svg.querySelector(".cursor"), time = (x - left) / (right - left) * svg.dataset.end;
      cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); cursor.style.visibility = "visible";
      svg.querySelector(".readout").textContent = Math.round(time) + " s:   " + read(svg, x);
    }
  };
  const hide = () => { for (const svg of plots) {
    svg.querySelector(".cursor").style.visibility = "hidden"; svg.querySelector(".readout").textContent = "";
  } };
  for (const svg of plots) { svg.onpointermove = show; svg.onpointerleave = hide; }
}
"""
