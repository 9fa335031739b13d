"""A broker's timers while an administrator sets the machine's time of day."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

_SCRIPT = """
    import time

    of_day, ahead_s = time.time, 0.0
    time.time = lambda: of_day() + ahead_s

    from twisted.internet import reactor

    from holdfast_log.broker.process.monotonic_reactor import make_monotonic

    make_monotonic(reactor)
    reactor.callLater(0.05, reactor.stop)
    reactor.callLater(1800, print, "a call that is due in half an hour was made")
    ahead_s = float({seconds})
    reactor.run()
    print("ended")
"""


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_setting_the_time_of_day_moves_no_timer(seconds: int) -> None:
    script = textwrap.dedent(_SCRIPT).format(seconds=seconds)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("ended\n", "")
