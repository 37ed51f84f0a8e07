"""How a story is told: real graphs, one saver, one colour per call, and everything that was seen.

A story is a coroutine that builds graphs and drives them through a `Play`. The play writes down
each answer, the nodes that ran, and at the end every checkpoint of every thread, in a form free of
random ids and of the order in which parallel tasks happened to end. Told on two savers, a story
must leave two equal transcripts; so a story is written once and `test_stories.py` tells it in
every `Way` and durability mode.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, TypedDict

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.graph import START, StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Durability, Interrupt, PregelTask, Send, StateSnapshot
from pydantic import BaseModel

from langgraph_durable.testing.model import Colour, at, finish

Saver = BaseCheckpointSaver[Any]
Graph = StateGraph[Any] | Callable[[Saver], Pregel[Any]]
Config = dict[str, Any]


class Open(Protocol):
    """Opens a new saver object on the store of this test."""

    def __call__(self, **options: Any) -> Saver: ...


# -- what a transcript holds ----------------------------------------------------------------------

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def plain(value: Any) -> Any:
    """A value without random ids; a tuple as a list, for the reference saver makes them so."""
    if isinstance(value, str):
        return _UUID.sub("#", value)
    if isinstance(value, StateSnapshot):
        return snapshot(value)
    if isinstance(value, PregelTask):
        state = value.state if isinstance(value.state, StateSnapshot) else value.state is not None
        return {
            "task": value.name,
            "path": plain(value.path),
            "error": value.error and str(value.error),
            "interrupts": plain(value.interrupts),
            "state": plain(state),
            "result": plain(value.result),
        }
    if isinstance(value, Send):
        return "send", value.node, plain(value.arg)
    if isinstance(value, BaseMessage | BaseModel):
        fields = plain(dict(value))
        if fields.get("id") == "#":  # LangGraph gives ids in place, maybe after the write is saved
            fields["id"] = None
        return type(value).__name__, fields
    if dataclasses.is_dataclass(value):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return type(value).__name__, fields
    if isinstance(value, BaseException):
        return type(value).__name__, str(value)
    if value and isinstance(value, list | tuple) and all(isinstance(v, Interrupt) for v in value):
        return sorted(("interrupt", repr(plain(each.value))) for each in value)
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set):
        return "set", sorted(value)
    return value


def snapshot(state: StateSnapshot) -> dict[str, Any]:
    """A state as its owner sees it."""
    return {
        "values": plain(state.values),
        "next": state.next,
        "metadata": plain(state.metadata),
        "tasks": [plain(task) for task in state.tasks],
        "interrupts": plain(state.interrupts),
    }


def lineage(states: Iterable[StateSnapshot]) -> list[dict[str, Any]]:
    """A history, newest first, in which a parent is named by its place in the list."""
    states = list(states)
    places = {state.config["configurable"]["checkpoint_id"]: n for n, state in enumerate(states)}
    parents = [(state.parent_config or at("")) for state in states]
    return [
        {**snapshot(state), "parent": places.get(parent["configurable"].get("checkpoint_id"))}
        for state, parent in zip(states, parents, strict=True)
    ]


def stored(found: Iterable[CheckpointTuple]) -> list[str]:
    """Every checkpoint of all namespaces, as lines in an order that parallel tasks do not upset."""
    found = list(found)
    steps = {each.checkpoint["id"]: each.metadata for each in found}
    lines = []
    for each in found:
        place = each.config["configurable"]
        parent = each.parent_config and each.parent_config["configurable"]["checkpoint_id"]
        writes = sorted(repr(plain(write[1:])) for write in each.pending_writes or ())
        values = sorted(plain(each.checkpoint["channel_values"]).items())
        where = place["thread_id"], plain(place["checkpoint_ns"])
        origin = parent in steps and (steps[parent].get("step"), steps[parent].get("source"))
        lines.append(repr((where, plain(each.metadata), origin, values, writes)))
    return sorted(lines)


def difference(told: Any, expected: Any, path: str = "") -> str:
    """Where two transcripts first differ, or ""."""
    if isinstance(told, dict) and isinstance(expected, dict) and told.keys() == expected.keys():
        pairs = [(f"{path}.{key}", told[key], expected[key]) for key in told]
    elif isinstance(told, list | tuple) and type(told) is type(expected):
        longer = itertools.zip_longest(told, expected, fillvalue="(nothing)")
        pairs = [(f"{path}[{n}]", *pair) for n, pair in enumerate(longer)]
    else:
        return "" if told == expected else f"{path}: {told!r}, but expected {expected!r}"
    return next((found for where, a, b in pairs if (found := difference(a, b, where))), "")


# -- how it is told -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How one play speaks to its saver."""

    colours: tuple[Colour, ...]
    """Taken in turn, one for each call."""
    reopen: bool = False
    """Every call is made through a new saver object, as another process would."""
    clone: bool = False
    """Every call is made through a copy that `with_allowlist` made."""


WAYS = {
    "sync": Way(("sync",)),
    "async": Way(("async",)),
    "reopened": Way(("async", "sync"), reopen=True),
    "cloned": Way(("sync", "async"), clone=True),
}


def compiled_with(graph: Graph, saver: Saver) -> Any:
    return graph.compile(checkpointer=saver) if isinstance(graph, StateGraph) else graph(saver)


@dataclass
class Play:
    """One telling of a story."""

    open_saver: Open
    way: Way = WAYS["sync"]
    mode: Durability = "async"
    between: Callable[[Play], None] = lambda play: None
    """What happens to the store before each call."""
    seen: list[tuple[str, Any]] = field(default_factory=list)
    """What each call gave back: ("run" or "state" or "history", plain)."""
    ran: list[str] = field(default_factory=list)
    """Which nodes ran, each time they did."""

    def __post_init__(self) -> None:
        self.saver = self.open_saver()
        self._graphs: dict[str, Graph] = {}
        self._colours = itertools.cycle(self.way.colours)

    def tell(self, story: Story) -> dict[str, Any]:
        """Tell it all and return the transcript."""
        colour: Colour = "sync" if set(self.way.colours) == {"sync"} else "async"
        return finish(colour, self._tell(story))

    async def _tell(self, story: Story) -> dict[str, Any]:
        await story(self)
        histories = [
            (thread, lineage(await self.history(thread, graph)))
            for thread, graph in sorted(self._graphs.items())
        ]
        listed = stored(self.saver.list(None))
        return {
            "seen": self.seen,
            "ran": sorted(self.ran),
            "histories": histories,
            "stored": listed,
        }

    async def call(self, graph: Graph, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the compiled graph in the colour whose turn it is."""
        self.between(self)
        colour = next(self._colours)
        if self.way.reopen:
            self.saver = self.open_saver()
        saver = self.saver.with_allowlist([("play", "Log")]) if self.way.clone else self.saver
        compiled = compiled_with(graph, saver)
        if colour == "sync":
            given = getattr(compiled, method)(*args, **options)
            return list(given) if method in ("stream", "get_state_history") else given
        given = getattr(compiled, f"a{method}")(*args, **options)
        if method in ("stream", "get_state_history"):
            return [each async for each in given]
        return await given

    async def run(self, graph: Graph, input: Any, thread: Any = "t", **options: Any) -> Any:
        """Invoke the graph; `thread` is a thread's name or a whole config."""
        options = {"durability": self.mode, **options}
        given = await self.call(graph, "invoke", input, self._config(graph, thread), **options)
        self.seen.append(("run", plain(given)))
        return given

    async def fail(self, error: type[Exception], *args: Any, **options: Any) -> str:
        """Invoke a graph that raises `error`, and return what it says."""
        try:
            await self.run(*args, **options)
        except error as raised:
            self.seen.append(("run", plain(raised)))
            return str(raised)
        raise AssertionError(f"no {error.__name__}")

    async def state(self, graph: Graph, thread: Any = "t", **options: Any) -> StateSnapshot:
        given = await self.call(graph, "get_state", self._config(graph, thread), **options)
        self.seen.append(("state", snapshot(given)))
        return given

    async def history(
        self, thread: Any = "t", graph: Graph | None = None, **options: Any
    ) -> list[StateSnapshot]:
        """The history of a thread, newest first."""
        config = self._config(graph, thread)
        graph = graph or self._graphs[str(config["configurable"]["thread_id"])]
        given: list[StateSnapshot] = await self.call(graph, "get_state_history", config, **options)
        self.seen.append(("history", lineage(given)))
        return given

    async def before(self, node: str, thread: Any = "t") -> Config:
        """The newest checkpoint from which `node` was to run next."""
        found = [s.config for s in await self.history(thread) if node in s.next]
        return found[0]  # type: ignore[return-value]

    async def update(
        self, graph: Graph, values: Any, thread: Any = "t", as_node: str | None = None
    ) -> Config:
        config = self._config(graph, thread)
        given: Config = await self.call(graph, "update_state", config, values, as_node)
        return given

    def settle(self, config: RunnableConfig) -> None:
        """In a node that changes values in place: wait until the node before has its writes stored.

        They may share its values, and no durability mode of LangGraph waits for them.
        """
        thread = {"configurable": {"thread_id": config["configurable"]["thread_id"]}}
        while self.mode != "exit":
            before = list(self.saver.list(thread, limit=2))[1:]  # type: ignore[arg-type]
            if all(each.pending_writes for each in before):
                return
            time.sleep(0.001)

    def wait_for(self, *siblings: str) -> None:
        """In a node: wait until nodes of the same step have ended and LangGraph has their writes.

        With `exit` it holds them back, so that their end can be seen, but not quite all of it.
        """
        while not {*siblings} <= {*self.ran}:
            time.sleep(0.001)
        if self.mode == "exit":
            time.sleep(0.2)
            return
        while True:
            head = self.saver.get_tuple(at("t"))  # type: ignore[arg-type]
            writes = (head and head.pending_writes) or ()
            if {*siblings} <= {
                name for _, channel, log in writes if channel == "log" for name in log
            }:
                return
            time.sleep(0.001)

    @property
    def threads(self) -> set[str]:
        """The threads of the story so far."""
        return set(self._graphs)

    def _config(self, graph: Graph | None, thread: Any) -> Config:
        config = thread if isinstance(thread, dict) else {"configurable": {"thread_id": thread}}
        if graph:
            self._graphs.setdefault(str(config["configurable"]["thread_id"]), graph)
        return config

    def node(self, name: str, **update: Any) -> Callable[[Any], dict[str, Any]]:
        """A node that leaves its name in the log, and in `ran`."""

        def run(state: Any) -> dict[str, Any]:
            self.ran.append(name)
            return {"log": [name], **update}

        return run


class Story(Protocol):
    """A coroutine over a play."""

    __name__: str

    async def __call__(self, play: Play) -> None: ...


MODES: tuple[Durability, ...] = ("sync", "async", "exit")


@dataclass(frozen=True)
class Entry:
    """A story, the modes it can be told in, and whether it looks back at old checkpoints."""

    story: Story
    modes: tuple[Durability, ...]
    looks_back: bool


STORIES: list[Entry] = []


def story(*modes: Durability, looks_back: bool = False) -> Callable[[Any], Any]:
    """Enter a story in the table, for these durability modes (all of them unless told)."""

    def enter(function: Any) -> Any:
        STORIES.append(Entry(function, modes or MODES, looks_back))
        return function

    return enter


# -- what most graphs are made of -----------------------------------------------------------------


class Log(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    note: str


def line(play: Play, *nodes: str | tuple[str, Any], state: Any = Log) -> StateGraph[Any]:
    """A graph of nodes in a row; each is a name, or a name and what it does."""
    graph = StateGraph(state)
    before = START
    for node in nodes:
        name, action = node if isinstance(node, tuple) else (node, play.node(node))
        graph.add_node(name, action).add_edge(before, name)
        before = name
    return graph
