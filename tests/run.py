"""What `make test` and `make test-long` run: one pytest process, so that one Ray cluster and
one Spark session serve all.

Says so when the run took longer than its budget of 15 minutes.
"""

from __future__ import annotations

import signal
import sys
import time

import pytest

BUDGET_S = 15 * 60


def main() -> int:
    """Run the suite; the exit status is pytest's."""
    # A shell that runs this in the background has it ignore Ctrl-C, and all its children too: those tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    long = "--long" in sys.argv[1:]
    selection = ["-m", "long"] if long else ["-m", "not long"]
    extra = [argument for argument in sys.argv[1:] if argument != "--long"]
    start_s = time.monotonic()
    status = int(pytest.main(["-q", "--durations=10", *selection, *extra]))
    took_s = time.monotonic() - start_s
    if not long and took_s > BUDGET_S:
        print(f"the tests took {took_s / 60:.1f} minutes: over their budget of {BUDGET_S // 60}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
