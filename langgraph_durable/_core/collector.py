"""Keeps Python's garbage collector out of the way while many objects are built at once.

The collector counts new containers. A conversation of 1,600 messages has 10,000: they made it run
fifteen times in each read, and through everything the process holds every seventh (7 ms a read in
a process of 110,000 objects, of 10). It can find nothing among objects that are being built, so
`serde` puts it to sleep for that time; afterwards it looks at them once.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_sleeping: set[int] = set()
"""The threads that have put it to sleep and will wake it."""


@contextmanager
def asleep() -> Iterator[None]:
    """Without automatic collections; one that was switched off by somebody else stays so."""
    if not gc.isenabled():
        yield
        return
    me = threading.get_ident()
    try:
        _sleeping.add(me)
        gc.disable()
        yield
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
