"""What `make test` and `make test-long` run.

What needs a cluster is one pytest process, so that one Ray cluster and one Spark session serve all of it. It waits for
processes much of the time; what needs neither Ray nor Spark runs meanwhile, beside it and at a low priority.

Says so when the run took longer than its budget of 15 minutes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest

BUDGET_S = 15 * 60
ALONE = ("tests/unit", "tests/simulation", "tests/ui", "tests/test_tidy.py")
"""Start neither Ray nor Spark, and compare no times."""
NICENESS = 10


def main() -> int:
    """Run the suite; the exit status is pytest's, the worse one where there are two."""
    # A shell that runs this in the background has it ignore Ctrl-C, and all its children too: those tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    extra = [argument for argument in sys.argv[1:] if argument != "--long"]
    if "--long" in sys.argv[1:]:
        return int(pytest.main(["-q", "--durations=10", "-m", "long", *extra]))
    options = ["-q", "--durations=10", "-m", "not long", *extra]
    start_s = time.monotonic()
    status = _both(options)
    took_s = time.monotonic() - start_s
    if took_s > BUDGET_S:
        print(f"the tests took {took_s / 60:.1f} minutes: over their budget of {BUDGET_S // 60}", file=sys.stderr)
    return status


def _both(options: list[str]) -> int:
    with tempfile.TemporaryFile() as said:
        alone = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *ALONE],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: os.nice(NICENESS),
        )
        try:
            on_clusters = int(pytest.main([*options, *(f"--ignore={path}" for path in ALONE), "tests"]))
            print("\nwithout Ray and Spark:", flush=True)
            beside = alone.wait()
        finally:
            alone.kill()
            alone.wait()
        said.seek(0)
        sys.stdout.buffer.write(said.read())
        sys.stdout.buffer.flush()
    return max(on_clusters, beside)


if __name__ == "__main__":
    sys.exit(main())
