"""The lab's HTML report as a browser shows it: the plots have marks, and the page asks the network for nothing."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from rstream.cli import main as cli

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--window-size=1000,2400",
)
# The colours of the first series and of the page.
BLUE, WHITE = (0x1F, 0x77, 0xB4), (0xFF, 0xFF, 0xFF)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")
def test_the_plots_of_the_report_have_marks(tmp_path: Path) -> None:
    report, picture = tmp_path / "report.html", tmp_path / "report.png"
    assert cli.run(["lab", "run", "--experiment", "E10", "--seed", "1", "--report", str(report)]) == 0
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", report.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    width, rows = pixels(picture)
    assert width == 1000
    blue = [at for at, row in enumerate(rows) if BLUE in row]
    # Six plots one under the other for the first topology: lines in every fifth of the page below the table.
    for fifth in range(5):
        span = range(350 + fifth * 400, 350 + (fifth + 1) * 400)
        assert any(at in span for at in blue), f"no line is drawn between pixels {span.start} and {span.stop}"
    # A decision's dot is 7 pixels high in its series' colour: wider than any line.
    assert any(longest_run(row, BLUE) >= 5 for row in rows)
    assert sum(row.count(WHITE) for row in rows) > 0.7 * width * len(rows)


def longest_run(row: list[tuple[int, int, int]], colour: tuple[int, int, int]) -> int:
    """The longest stretch of one colour in a row."""
    best = here = 0
    for pixel in row:
        here = here + 1 if pixel == colour else 0
        best = max(best, here)
    return best


def pixels(path: Path) -> tuple[int, list[list[tuple[int, int, int]]]]:
    """Width and rows of an 8-bit RGB or RGBA PNG."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, width, depth = 8, b"", 0, 3
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, _, bits, colour_type = struct.unpack(">IIBB", body[:10])
            assert bits == 8
            assert colour_type in (2, 6)
            depth = 3 if colour_type == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, stride = zlib.decompress(packed), width * depth
    rows: list[list[tuple[int, int, int]]] = []
    before = bytearray(stride)
    for start in range(0, len(raw), stride + 1):
        line = bytearray(raw[start + 1 : start + 1 + stride])
        _unfilter(raw[start], line, before, depth)
        rows.append([(line[x], line[x + 1], line[x + 2]) for x in range(0, stride, depth)])
        before = line
    return width, rows


def _unfilter(kind: int, line: bytearray, before: bytearray, depth: int) -> None:
    for x in range(len(line)):
        left = line[x - depth] if x >= depth else 0
        up = before[x]
        if kind == 1:
            line[x] = (line[x] + left) & 255
        elif kind == 2:
            line[x] = (line[x] + up) & 255
        elif kind == 3:
            line[x] = (line[x] + (left + up) // 2) & 255
        elif kind == 4:
            corner = before[x - depth] if x >= depth else 0
            guess = left + up - corner
            near = min((left, up, corner), key=lambda value: abs(guess - value))
            line[x] = (line[x] + near) & 255
