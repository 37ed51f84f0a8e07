"""Following a thread while somebody else runs it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.timeline import text

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step
    from langgraph_durable.timeline.timeline import Timeline


def watch(timeline: Timeline, every: float, timeout: float | None, show: bool) -> Iterator[Step]:
    """New steps as they come; see `Timeline.watch`."""
    for name, value in (("every", every), ("timeout", timeout)):
        is_number = type(value) in (int, float) or (name == "timeout" and value is None)
        if not is_number or (value is not None and not value >= 0):
            raise ConfigurationError(f"{name} is a number of seconds, not {value!r}")
    timeline.refresh()
    newest = max((step.id for step in timeline.recent(1)), default="")
    display = _display(timeline) if show else None
    return _follow(timeline, newest, every, timeout, display)


def _follow(
    timeline: Timeline, newest: str, every: float, timeout: float | None, display: Any
) -> Iterator[Step]:
    quiet_since = time.monotonic()
    while timeout is None or time.monotonic() - quiet_since < timeout:
        timeline.refresh()
        fresh = _since(timeline, newest)
        for step in fresh:
            newest, quiet_since = step.id, time.monotonic()
            if display is not None:
                display(step)
            yield step
        time.sleep(every)


def _since(timeline: Timeline, newest: str) -> list[Step]:
    """The steps after `newest`, oldest first; reads no more than those and one page."""
    many = 8
    while True:
        steps = timeline.recent(many)
        if len(steps) < many or steps[0].id <= newest:
            return [step for step in steps if step.id > newest]
        many *= 4


def _display(timeline: Timeline) -> Any:
    """Updates the cell in a notebook, prints a line elsewhere."""
    try:
        ipython: Any = importlib.import_module("IPython")
        display: Any = importlib.import_module("IPython.display").display
    except ImportError:
        return lambda step: print(text.line(step, 0, False, True))
    shell = ipython.get_ipython()
    if shell is None or "IPKernelApp" not in shell.config:
        return lambda step: print(text.line(step, 0, False, True))
    cell = display(timeline, display_id=True)
    return lambda step: cell.update(timeline)
