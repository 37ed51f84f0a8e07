"""How much work something is, as a number that is the same on every machine, busy or not."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any


def calls_of(act: Callable[[], Any]) -> int:
    """How many functions are called in this thread, ours or not.

    The collector waits meanwhile: it may end what other tests have left behind.
    """
    called = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return called
