"""The program whose processes adopt a file, and are killed before any statement of it."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3

from forks import acknowledge, serve

from langgraph_durable import SqliteSaver
from langgraph_durable._sqlite import adoption

adoption.MANY = 5  # so that a thread takes several slices


def adopt(path: str, end_at: int) -> None:
    """Adopt all threads, but die as the statement of this number begins; 0 tells how many."""
    counter = itertools.count(1)

    def traced(statement: str) -> None:
        if next(counter) == end_at:
            os.kill(os.getpid(), signal.SIGKILL)

    conn = sqlite3.connect(path, check_same_thread=False)
    conn.set_trace_callback(traced)
    report = SqliteSaver(conn).adopt()
    assert not report.failed
    acknowledge("adopted", statements=next(counter) - 1, checkpoints=report.checkpoints)


if __name__ == "__main__":
    serve({"adopt": adopt})
