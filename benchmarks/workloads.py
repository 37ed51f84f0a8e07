"""What the savers are given: text, messages, graphs, and checkpoints made ahead of the clock.

Everything is drawn from seeded generators, so that two savers in one run, and two runs, see the
same sizes.
"""

from __future__ import annotations

import operator
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Annotated, Any, TypedDict

from entrants import Saver
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Send

MESSAGE_BYTES = 600


def listed(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


COMMON = listed("""
    the of and to a in is that it for you was with on as are be this have from or had by but not
    what all were we when your can said there use an each which she do how their if will up other
    about out many then them these so some her would make like him into time has look
""")
ONSETS = listed("b c d f g h l m n p r s t v w br ch cl cr dr fl gr pl pr sh sl st str th tr")
VOWELS = listed("a e i o u ai ea ee ie oa oo ou")
CODAS = ["", *listed("b ck d l ll m n nd ng nt p r s st t th")]


class Prose:
    """English-like sentences: 4,000 words used with Zipf's frequencies, and some numbers.

    Measured on 2026-11-18 with zlib level 6: a 600-byte message alone shrinks to 61 % of its size,
    a megabyte of messages to 36 %. Real English cut alike gives 56 % and 34 % (the GPL, 35 kB), and
    65 % and 42 % (our own design notes, 93 kB): compression is neither flattered nor starved.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        spelling = random.Random(0)  # the vocabulary is the same for every seed
        self.words = COMMON + [make_word(spelling) for _ in range(4_000 - len(COMMON))]
        self.weights = list(accumulate(1 / (rank + 3) for rank in range(len(self.words))))

    def text(self, size: int = MESSAGE_BYTES) -> str:
        """About `size` bytes of sentences; exactly `size` after the cut."""
        words = self.random.choices(self.words, cum_weights=self.weights, k=size // 4)
        for position in range(0, len(words), self.random.randint(8, 14)):
            words[position] = words[position].capitalize()
            if position:
                words[position - 1] += self.random.choice((".", ".", ",", "?", f" {position}."))
        return " ".join(words)[:size].ljust(size, ".")

    def message(self, number: int) -> AnyMessage:
        """A human or an AI message by turns, with an id as LangGraph would give it."""
        kind = AIMessage if number % 2 else HumanMessage
        identity = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        return kind(content=self.text(), id=identity)

    def messages(self, count: int) -> list[AnyMessage]:
        """A conversation of `count` messages."""
        return [self.message(number) for number in range(count)]


def make_word(spelling: random.Random) -> str:
    """One pronounceable word of one to four syllables."""
    syllables = spelling.choices((1, 2, 3, 4), (3, 5, 3, 1))[0]
    return "".join(
        spelling.choice(ONSETS) + spelling.choice(VOWELS) + spelling.choice(CODAS)
        for _ in range(syllables)
    )


def thread(name: str) -> RunnableConfig:
    """The config of one thread."""
    return {"configurable": {"thread_id": name}, "recursion_limit": 200}


class ChatState(TypedDict):
    """A conversation, and one small channel that the first node sets."""

    messages: Annotated[list[AnyMessage], add_messages]
    intent: str


class Chat:
    """The two-node graph of the issue on one saver: a turn is a question and an answer."""

    def __init__(self, saver: Saver, name: str = "chat", builder: Any = None) -> None:
        self.prose = Prose(1)
        self.config = thread(name)
        self.graph = (builder or chat_builder)(self.prose).compile(checkpointer=saver)

    def seed(self, count: int) -> None:
        """Start the thread with `count` messages in one step."""
        self.graph.update_state(self.config, {"messages": self.prose.messages(count)})

    def turn(self) -> None:
        """Two new messages of MESSAGE_BYTES each."""
        question = HumanMessage(content=self.prose.text())
        self.graph.invoke({"messages": [question]}, self.config, durability="sync")


def chat_builder(prose: Prose) -> StateGraph[Any, Any, Any, Any]:
    """`classify`, then `answer` with a message."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(ChatState)
    builder.add_node("classify", lambda state: {"intent": f"chat {len(state['messages'])}"})
    builder.add_node("answer", lambda state: {"messages": [AIMessage(content=prose.text())]})
    builder.add_edge(START, "classify")
    builder.add_edge("classify", "answer")
    builder.add_edge("answer", END)
    return builder


def delegating_builder(prose: Prose) -> StateGraph[Any, Any, Any, Any]:
    """A parent whose only node is the chat graph, which inherits saver and conversation."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(ChatState)
    builder.add_node("assistant", chat_builder(prose).compile())
    builder.add_edge(START, "assistant")
    builder.add_edge("assistant", END)
    return builder


class LoopState(TypedDict):
    """A large value and a counter."""

    document: bytes
    count: int


class Loop:
    """A document that does not change while a counter does; a turn is one step."""

    def __init__(self, saver: Saver, document: bytes, name: str = "loop") -> None:
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(LoopState)
        builder.add_node("work", lambda state: {"count": state.get("count", 0) + 1})
        builder.add_edge(START, "work")
        builder.add_edge("work", END)
        self.graph = builder.compile(checkpointer=saver)
        self.config = thread(name)
        self.graph.update_state(self.config, {"document": document, "count": 0})

    def turn(self) -> None:
        """One more step, resumed from what is stored."""
        self.graph.invoke({"count": 1}, self.config, durability="sync")


def merge(files: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    """The reducer of a file system that lives in the state."""
    return {**files, **new}


class WorkspaceState(TypedDict):
    """As deep agents keep it: files by name, and a conversation about them."""

    files: Annotated[dict[str, str], merge]
    messages: Annotated[list[AnyMessage], add_messages]


class Workspace:
    """A state with many files, one of which changes in a turn."""

    def __init__(self, saver: Saver, files: int = 200, size: int = 2_000) -> None:
        self.prose, self.number, self.size = Prose(6), 0, size
        self.names = [f"/src/module_{number:03}.py" for number in range(files)]
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(WorkspaceState)
        builder.add_node("edit", self.edit)
        builder.add_edge(START, "edit")
        builder.add_edge("edit", END)
        self.graph = builder.compile(checkpointer=saver)
        self.config = thread("workspace")
        given = {name: self.prose.text(size) for name in self.names}
        self.graph.update_state(self.config, {"files": given})

    def edit(self, state: WorkspaceState) -> dict[str, Any]:
        """Rewrite the next file and say so."""
        self.number += 1
        name = self.names[self.number * 7 % len(self.names)]
        said = AIMessage(content=f"rewrote {name}")
        return {"files": {name: self.prose.text(self.size)}, "messages": [said]}

    def turn(self) -> None:
        """One file changes."""
        self.graph.invoke({"messages": []}, self.config, durability="sync")


class FanState(TypedDict):
    """What the tasks of a fan-out add up to."""

    results: Annotated[list[dict[str, Any]], operator.add]


class FanTask(TypedDict):
    """What one `Send` carries."""

    number: int
    text: str


def fan_graph(saver: Saver, width: int) -> Callable[[str], None]:
    """A function that runs one new thread of `width` parallel `Send` tasks."""
    prose = Prose(2)
    texts = [prose.text(200) for _ in range(width)]

    def work(task: FanTask) -> dict[str, Any]:
        return {"results": [{"number": task["number"], "found": task["text"]}]}

    def fan_out(state: FanState) -> list[Send]:
        return [Send("work", {"number": n, "text": text}) for n, text in enumerate(texts)]

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(FanState)
    builder.add_node("start", lambda state: {"results": []})
    builder.add_node("work", work, input_schema=FanTask)
    builder.add_edge(START, "start")
    builder.add_conditional_edges("start", fan_out, ["work"])
    graph = builder.compile(checkpointer=saver)

    def run(name: str) -> None:
        graph.invoke({"results": []}, thread(name), durability="sync")

    return run


@dataclass(frozen=True, slots=True)
class Step:
    """The arguments of one `put`, and the write that leads to it."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: ChannelVersions
    changes: Mapping[str, Any]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """As `put` takes them."""
        return (self.config, self.checkpoint, self.metadata, self.new_versions)


class Timeline:
    """One thread's checkpoints, each the child of the last, made before the clock starts."""

    def __init__(self, saver: Saver, name: str, state: Mapping[str, Any]) -> None:
        self.next_version = saver.get_next_version
        self.name = name
        self.state = dict(state)
        self.versions: dict[str, Any] = {}
        self.parent: str | None = None
        self.number = -1

    @property
    def latest(self) -> RunnableConfig:
        """The config of the newest checkpoint."""
        where = {"thread_id": self.name, "checkpoint_ns": "", "checkpoint_id": self.parent}
        return {"configurable": where}

    def advance(self, changes: Mapping[str, Any]) -> Step:
        """The next checkpoint; only `changes` differ from the last (at first, everything)."""
        new = dict(self.state, **changes) if self.parent is None else dict(changes)
        self.state.update(new)
        for channel in new:
            self.versions[channel] = self.next_version(self.versions.get(channel), None)
        config: RunnableConfig = {"configurable": {"thread_id": self.name, "checkpoint_ns": ""}}
        if self.parent is not None:
            config["configurable"]["checkpoint_id"] = self.parent
        seen = dict(list(self.versions.items())[:2])
        checkpoint: Checkpoint = {
            "v": 4,
            "id": str(uuid6(clock_seq=self.number)),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": dict(self.state),
            "channel_versions": dict(self.versions),
            "versions_seen": {"__input__": {}, "agent": seen, "tools": dict(seen)},
            "updated_channels": sorted(new),
        }
        metadata: CheckpointMetadata = {"source": "loop", "step": self.number, "parents": {}}
        self.parent = checkpoint["id"]
        self.number += 1
        versions = {channel: self.versions[channel] for channel in new}
        return Step(config, checkpoint, metadata, versions, dict(changes))


class TenChannels:
    """The state of the raw calls: 100 messages and nine small channels, one of which changes."""

    def __init__(self, saver: Saver, name: str, messages: int = 100) -> None:
        self.prose = Prose(3)
        state: dict[str, Any] = {
            "messages": self.prose.messages(messages),
            "scratch": self.prose.text(200),
            "topic": self.prose.text(40),
            "count": 17,
            "score": 0.75,
            "done": False,
            "tags": ["alpha", "beta", "gamma"],
            "profile": {"name": "Ada", "language": "en", "level": 3},
            "plan": [self.prose.text(60) for _ in range(5)],
            "limits": {"tokens": 4096, "seconds": 30},
        }
        self.timeline = Timeline(saver, name, state)

    def change_one(self) -> Step:
        """A step in which a 200-byte text changes and the messages do not."""
        return self.timeline.advance({"scratch": self.prose.text(200)})

    def grow(self) -> Step:
        """A step in which the conversation grows by one message."""
        messages = self.timeline.state["messages"]
        return self.timeline.advance({"messages": [*messages, self.prose.message(len(messages))]})


class OneInteger:
    """The smallest state there is."""

    def __init__(self, saver: Saver, name: str) -> None:
        self.prose = Prose(3)
        self.timeline = Timeline(saver, name, {"count": 0})

    def change_one(self) -> Step:
        """A step in which the number goes up."""
        return self.timeline.advance({"count": self.timeline.number})
