"""Keeps Python's garbage collector out of the way while many objects are built at once.

The collector counts new containers. A conversation of 1,600 messages has 10,000: they made it run
fifteen times in each read, and through everything the process holds every seventh (7 ms a read in
a process of 110,000 objects, of 10). It can find nothing among objects that are being built, so
`serde` puts it to sleep for that time; afterwards it looks at them once.

That look is one piece, in which no other thread runs: 3 ms for 5,000 messages. An event loop that
waits for the interpreter already would wait for that too, so a worker lets it go first.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_sleeping: set[int] = set()
"""The threads that have put it to sleep and will wake it."""


MANY = 10_000
"""Objects after which others go first: a look at them takes a millisecond."""
MOMENT = 0.00005
"""Seconds in which a thread that waits for the interpreter wakes up."""


@contextmanager
def asleep(objects: int = 0) -> Iterator[None]:
    """Without automatic collections, while about so many objects are made.

    One that was switched off by somebody else stays so.
    """
    if not gc.isenabled():
        yield
        return
    me = threading.get_ident()
    try:
        _sleeping.add(me)
        gc.disable()
        yield
        if objects > MANY and me != threading.main_thread().ident:
            time.sleep(MOMENT)
    finally:
        gc.enable()
        _sleeping.discard(me)


def _after_fork_in_child() -> None:
    """The thread that would have woken it may not exist here."""
    if _sleeping:
        _sleeping.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
