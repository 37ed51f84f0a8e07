"""What this process knows of the runs that call a saver: where each began, and what came last.

With every call LangGraph names the checkpoint of the root that the run is at; by it a store tells
whether the thread was deleted meanwhile. But that checkpoint need not be stored: under "async" its
save may be on its way, and under "exit" there is none until the end. Then what the run began with
is asked for instead. LangGraph hands one `control` to all graphs of a run, so a call from a
sub-graph is known to belong to it.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from langchain_core.runnables import RunnableConfig

from langgraph_durable import addresses
from langgraph_durable._core.authors import Author, GivenId
from langgraph_durable._core.engine import Place

MOST = 10_000
"""Threads, runs, and checkpoints that runs were given, that are remembered."""
MOST_RIVALS = 100
"""Runs at one checkpoint that are told apart where ids come back as plain text."""
INSIDE = "__pregel_task_id"
"""LangGraph puts this into `configurable` for whatever is called from inside a node."""


class Began(NamedTuple):
    control: object
    """Of the run; kept, so that no other run's gets its address."""
    id: str


class Runs:
    """Shared by the copies of a saver."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._began: dict[tuple[int, str], Began] = {}
        """By the address of a run's control, and thread."""
        self._at: dict[tuple[int, str, str], str] = {}
        """The checkpoint that a run has stored last, by its hand, thread and namespace."""
        self._given: dict[str, dict[tuple[int, str, str], GivenId]] = {}
        """The checkpoints that were given to runs, by id, and the same."""

    def last_put(self, place: Place) -> str | None:
        """What was stored last in the root of the thread."""
        return None if place.ns else self._last.get(place.thread_id)

    def loaded(self, config: RunnableConfig, place: Place, found: str) -> None:
        """A run that loads a checkpoint begins there, unless one of its nodes just looks."""
        if isinstance(found, GivenId):
            if len(self._given) >= MOST:
                self._given.clear()
            here = self._given.setdefault(str(found), {})
            if len(here) >= MOST_RIVALS:
                here.clear()
            here[found.by, place.thread_id, place.ns] = found
        if not place.ns and addresses.is_by_run(config):
            self._note(config, place.thread_id, found, again=INSIDE not in config["configurable"])

    def stored(self, config: RunnableConfig, place: Place, new: str) -> None:
        """A run that found nothing begins with what it stores first."""
        if place.ns:
            return
        if len(self._last) >= MOST:
            self._last.clear()
        self._last[place.thread_id] = new
        if addresses.is_by_run(config):
            self._note(config, place.thread_id, new, again=False)

    def recognised(self, config: RunnableConfig, place: Place) -> RunnableConfig:
        """The same config with the very id that its run was given.

        Who hands tuples on between LangGraph and a saver may have made plain text of it.
        """
        configurable = config["configurable"]
        if type(configurable.get("checkpoint_id")) is not str or place.id not in self._given:
            return config
        key = hand_of(config), place.thread_id, place.ns
        given = self._given.get(place.id, {}).get(key)
        if given is None:
            return config
        return {**config, "configurable": {**configurable, "checkpoint_id": given}}

    def author(self, config: RunnableConfig, place: Place) -> Author:
        """Who stores something at a checkpoint, or goes on from it."""
        hand, given = hand_of(config), config["configurable"].get("checkpoint_id")
        if isinstance(given, GivenId):
            return Author(hand, given.known if given.by == hand else None)
        is_own = hand and given and self._at.get((hand, place.thread_id, place.ns)) == given
        return Author(hand, () if is_own else None)

    def storing(self, by: Author, place: Place, new: str) -> None:
        """From now on a rival may find what the run stores."""
        if by.hand:
            if len(self._at) >= MOST:
                self._at.clear()
            self._at[by.hand, place.thread_id, place.ns] = new

    def _note(self, config: RunnableConfig, thread_id: str, began: str, *, again: bool) -> None:
        control = _control(config)
        key = id(control), thread_id
        if control is None or (key in self._began and not again):
            return
        if len(self._began) >= MOST:
            self._began.clear()
        self._began[key] = Began(control, began)

    def root_of(self, config: RunnableConfig, place: Place) -> str | None:
        """By what a store tells whether the thread was deleted since the run began."""
        root = addresses.root_of_run(config)
        if root is None or isinstance(root, GivenId) or root == self._last.get(place.thread_id):
            return root
        began = self._began.get((id(_control(config)), place.thread_id))
        return root if began is None else began.id


def hand_of(config: RunnableConfig) -> int:
    """See `records.Author`: as long as a run works, nobody else's control has its address."""
    control = _control(config) if addresses.is_by_run(config) else None
    if control is None:
        return 0
    return hash((_SECRET, os.getpid(), id(control))) & 0xFFFFFFFF or 1


_SECRET = int.from_bytes(os.urandom(7), "little")


def _control(config: RunnableConfig) -> object | None:
    return getattr(config["configurable"][addresses.RUN_LOOP], "control", None)
