"""Following a thread while somebody else runs it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.timeline import text

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step
    from langgraph_durable.timeline.timeline import Timeline


class Watch(Iterator["Step"]):
    """New steps as they come. As the result of a cell it follows by itself, until interrupted."""

    def __init__(self, thread_id: str, steps: Iterator[Step]) -> None:
        self._thread_id, self._steps = thread_id, steps

    def __next__(self) -> Step:
        return next(self._steps)

    def __repr__(self) -> str:
        return f"Watch of {self._thread_id!r}: follows in a loop, `for step in tl.watch(): ...`"

    def _ipython_display_(self) -> None:
        with suppress(KeyboardInterrupt):
            for _ in self:
                pass


def watch(timeline: Timeline, every: float, timeout: float | None, show: bool) -> Watch:
    """New steps as they come; see `Timeline.watch`."""
    for name, value in (("every", every), ("timeout", timeout)):
        is_number = type(value) in (int, float) or (name == "timeout" and value is None)
        if not is_number or (value is not None and not value >= 0):
            raise ConfigurationError(f"{name} is a number of seconds, not {value!r}")
    timeline.refresh()
    newest = max((step.id for step in timeline.recent(1)), default="")
    display = _display(timeline) if show else None
    steps = _follow(timeline, newest, every, timeout, display)
    return Watch(timeline.thread_id, steps)


def _follow(
    timeline: Timeline, newest: str, every: float, timeout: float | None, display: Any
) -> Iterator[Step]:
    quiet_since, shown = time.monotonic(), ""
    while True:
        timeline.refresh()
        for step in _since(timeline, newest):
            newest, quiet_since, shown = step.id, time.monotonic(), text.line(step)
            if display is not None:
                display(step)
            yield step
        if display is not None and shown:
            shown = _again(timeline, shown, display)
        if timeout is not None and time.monotonic() - quiet_since >= timeout:
            return
        time.sleep(every)


def _again(timeline: Timeline, shown: str, display: Any) -> str:
    """Show the newest step once more if it has come to wait, or failed, since it was shown."""
    for step in timeline.recent(1):
        if (line := text.line(step)) != shown:
            display(step)
            return line
    return shown


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
        return lambda step: print(text.line(step))
    shell = ipython.get_ipython()
    if shell is None or "IPKernelApp" not in shell.config:
        return lambda step: print(text.line(step))
    cell = display(timeline, display_id=True)
    return lambda step: cell.update(timeline)
