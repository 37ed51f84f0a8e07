"""What the hazard tests put in harm's way: stores, checkpoints, a graph, and child processes.

Run as a program this file is a fork server: it imports everything once, then forks one child for
each job named on its standard input, so that hundreds of processes can be started and killed. A
child tells what it has done with `acknowledge`, one atomic line each; `ForkServer` is the other
end; see tests/forks.py. A job is any function of the table `JOBS` at the bottom.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import operator
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypedDict

from forks import acknowledge, run_and_exit, serve
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from langgraph_durable import (
    KeepLast,
    MaxAge,
    MaxBytes,
    Milestones,
    Policy,
    RedisSaver,
    SqliteSaver,
    Thin,
)
from langgraph_durable._core import pruning, shortening

Saver = BaseCheckpointSaver[str]
Config = dict[str, Any]

# -- stores ---------------------------------------------------------------------------------------


class LateSaver(StockSaver):
    """A saver that lies: it returns before it has written. The kill tests must catch it."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        write = super().put
        threading.Timer(0.03, write, (config, checkpoint, metadata, new_versions)).start()
        place = {"thread_id": config["configurable"]["thread_id"], "checkpoint_ns": ""}
        return {"configurable": {**place, "checkpoint_id": checkpoint["id"]}}


def open_store(kind: str, path: Path | str, **options: Any) -> Saver:
    """Open the saver under test (`durable`) or one of the controls (the others)."""
    if kind.startswith("server "):
        prefix = "t" + hashlib.sha1(str(path).encode()).hexdigest()
        return RedisSaver(kind.removeprefix("server "), prefix=prefix, **options)
    if kind == "durable":
        return SqliteSaver(str(path), **options)
    if kind == "unguarded":
        return SqliteSaver(str(path), on_conflict="allow", **options)
    patience = {"stock": 30.0, "hasty": 0.0, "late": 30.0}[kind]
    connection = sqlite3.connect(str(path), timeout=patience, check_same_thread=False)
    return (LateSaver if kind == "late" else StockSaver)(connection)


def close_store(saver: Saver) -> None:
    """Close either kind; the stock saver leaves that to its connection."""
    (saver.conn if isinstance(saver, StockSaver) else saver).close()


def intact(path: Path | str) -> bool:
    """Whether SQLite finds nothing wrong with the file."""
    connection = sqlite3.connect(str(path))
    try:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


# -- checkpoints ----------------------------------------------------------------------------------


def thread(thread_id: str, checkpoint_id: str | None = None, ns: str = "") -> Config:
    """The config that names a thread, or one checkpoint of it."""
    place = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {"configurable": place | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}


def state(step: int) -> dict[str, Any]:
    """The channel values of step `step`: one list that grows, one dict and one number."""
    return {
        "messages": [f"message {n}" for n in range(step + 1)],
        "facts": {"step": step, "name": f"step {step}"},
        "count": step,
    }


def checkpoint(step: int, values: dict[str, Any] | None = None) -> dict[str, Any]:
    """A checkpoint of that step, ready for `put`."""
    values = state(step) if values is None else values
    versions = dict.fromkeys(values, f"{step + 1:032}.{step + 1:016}")
    return {
        **empty_checkpoint(),
        "id": str(uuid6(clock_seq=step)),
        "channel_values": values,
        "channel_versions": versions,
    }


def metadata(step: int, run_id: str = "") -> dict[str, Any]:
    """The metadata that goes with it."""
    extra = {"run_id": run_id} if run_id else {}
    return {"source": "loop", "step": step, "parents": {}, **extra}


def put(saver: Saver, config: Config, step: int, run_id: str = "") -> Config:
    """Store step `step` as a child of `config`; its own config comes back."""
    made = checkpoint(step)
    return saver.put(config, made, metadata(step, run_id), made["channel_versions"])


async def aput(saver: Saver, config: Config, step: int, run_id: str = "") -> Config:
    """`put`, async."""
    made = checkpoint(step)
    return await saver.aput(config, made, metadata(step, run_id), made["channel_versions"])


def writes(step: int, count: int = 3) -> list[tuple[str, Any]]:
    """The pending writes that a task of that step leaves."""
    return [("messages", f"write {step}.{n}") for n in range(count)]


def fill(saver: Saver, thread_id: str, steps: int = 3, run_id: str = "") -> list[Config]:
    """Store a thread of `steps` checkpoints, each with the writes of one task."""
    config, configs = thread(thread_id), []
    for step in range(steps):
        config = put(saver, config, step, run_id)
        saver.put_writes(config, writes(step), f"task-{step}")
        configs.append(config)
    return configs


def fill_with_deltas(saver: Saver, thread_id: str, steps: int) -> None:
    """The same, with a DeltaChannel whose value is stored at every fifth step only.

    Its entries are long enough to be items, and no two threads or steps have the same.
    """
    config = thread(thread_id)
    entries = [f"entry {n} of {thread_id}: {'word ' * 20}" for n in range(steps)]
    for step in range(steps):
        made = checkpoint(step)
        made["channel_versions"]["log"] = f"{step + 1:032}"
        told = metadata(step)
        if step % 5:
            told["counters_since_delta_snapshot"] = {"log": [step % 5, step % 5]}
        else:
            made["channel_values"]["log"] = _DeltaSnapshot(entries[:step])
        config = saver.put(config, made, told, made["channel_versions"])
        saver.put_writes(config, [*writes(step), ("log", [entries[step]])], f"task-{step}")


def plain(found: CheckpointTuple | None) -> Any:
    """A checkpoint tuple as plain comparable data."""
    if found is None:
        return None
    return {
        "config": found.config["configurable"],
        "checkpoint": dict(found.checkpoint),
        "metadata": dict(found.metadata),
        "parent": found.parent_config and found.parent_config["configurable"],
        "writes": [tuple(write) for write in found.pending_writes or ()],
    }


def whole(found: CheckpointTuple) -> bool:
    """Whether a checkpoint made by `put` is exactly what its step says it must be."""
    step = found.metadata["step"]
    left = [(task, *write) for task, write in zip([f"task-{step}"] * 3, writes(step), strict=True)]
    kept = [tuple(write) for write in found.pending_writes or ()]
    return found.checkpoint["channel_values"] == state(step) and kept in ([], left)


# -- a graph --------------------------------------------------------------------------------------

_effects: int | None = None


def log_effects_to(path: Path | str | None) -> None:
    """From now on every node of this process leaves a line in that file for each time it runs."""
    global _effects
    _effects = path and os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def act(label: str) -> str:
    """The side effect of a node."""
    if _effects:
        os.write(_effects, f"{label}\n".encode())
    return label


class Inner(TypedDict, total=False):
    turn: int
    steps: Annotated[list[str], operator.add]


class State(TypedDict, total=False):
    turn: int
    log: Annotated[list[str], operator.add]
    steps: list[str]


def _node(name: str, channel: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda state: {channel: [act(f"{state['turn']}.{name}")]}


def _work(order: dict[str, Any]) -> dict[str, Any]:
    return {"log": [act(f"{order['turn']}.work{order['part']}")]}


def _share(state: State) -> list[Send]:
    return [Send("work", {"turn": state["turn"], "part": part}) for part in range(2)]


def builder() -> StateGraph[Any]:
    """first -> a sub-graph of two nodes -> two workers sent at once -> last."""
    inner = StateGraph(Inner)
    inner.add_node("x", _node("x", "steps")).add_node("y", _node("y", "steps"))
    inner.add_edge(START, "x").add_edge("x", "y").add_edge("y", END)
    outer = StateGraph(State)
    outer.add_node("first", _node("first", "log")).add_node("inner", inner.compile())
    outer.add_node("work", _work).add_node("last", _node("last", "log"))
    outer.add_edge(START, "first").add_edge("first", "inner").add_edge("work", "last")
    outer.add_conditional_edges("inner", _share, ["work"])
    return outer.add_edge("last", END)


def turn_input(turn: int) -> State:
    """What the user says in that turn."""
    return {"turn": turn, "log": [f"{turn}.said"]}


def state_after(turns: int) -> dict[str, Any]:
    """The state of a run of that many turns that nothing disturbed."""
    graph = builder().compile(checkpointer=InMemorySaver())
    config = thread("undisturbed")
    for turn in range(1, turns + 1):
        graph.invoke(turn_input(turn), config)
    return graph.get_state(config).values


# -- what a child tells ---------------------------------------------------------------------------


def _acknowledge_put(config: Config, made: dict[str, Any]) -> None:
    place = config["configurable"]
    ns = place.get("checkpoint_ns", "")
    acknowledge("put", thread=place["thread_id"], ns=ns, id=made["id"])


def _acknowledge_writes(config: Config, made: Iterable[tuple[str, Any]], task: str) -> None:
    place = config["configurable"]
    labels = [label for name, value in made if name in ("log", "steps") for label in value]
    acknowledge(
        "writes",
        thread=place["thread_id"],
        ns=place.get("checkpoint_ns", ""),
        id=place["checkpoint_id"],
        task=task,
        channels=[name for name, _ in made],
        labels=labels,
    )


def acknowledge_calls(saver: Saver) -> Saver:
    """Make each put and put_writes of this saver, in both colours, tell when it has returned."""
    store, store_writes = saver.put, saver.put_writes
    astore, astore_writes = saver.aput, saver.aput_writes

    def put(config: Any, made: Any, *rest: Any) -> Any:
        result = store(config, made, *rest)
        _acknowledge_put(config, made)
        return result

    def put_writes(config: Any, made: Any, task_id: str, task_path: str = "") -> None:
        store_writes(config, made, task_id, task_path)
        _acknowledge_writes(config, made, task_id)

    async def aput(config: Any, made: Any, *rest: Any) -> Any:
        result = await astore(config, made, *rest)
        _acknowledge_put(config, made)
        return result

    async def aput_writes(config: Any, made: Any, task_id: str, task_path: str = "") -> None:
        await astore_writes(config, made, task_id, task_path)
        _acknowledge_writes(config, made, task_id)

    saver.put, saver.put_writes = put, put_writes  # type: ignore[method-assign]
    saver.aput, saver.aput_writes = aput, aput_writes  # type: ignore[method-assign]
    return saver


# -- jobs: what a child does until it is killed ---------------------------------------------------


def invoke_forever(
    kind: str, path: str, thread_id: str, mode: str, turn: int, effects: str | None = None
) -> None:
    """Run turn after turn of the graph."""
    log_effects_to(effects)
    graph = builder().compile(checkpointer=acknowledge_calls(open_store(kind, path)))
    for n in itertools.count(turn):
        acknowledge("started", turn=n)
        graph.invoke(turn_input(n), thread(thread_id), durability=mode)
        acknowledge("finished", turn=n)


def ainvoke_forever(
    kind: str, path: str, thread_id: str, mode: str, turn: int, effects: str | None = None
) -> None:
    """Run turn after turn of the graph on an event loop."""
    log_effects_to(effects)

    async def run() -> None:
        graph = builder().compile(checkpointer=acknowledge_calls(open_store(kind, path)))
        for n in itertools.count(turn):
            acknowledge("started", turn=n)
            await graph.ainvoke(turn_input(n), thread(thread_id), durability=mode)
            acknowledge("finished", turn=n)

    asyncio.run(run())


def invoke_to_statement(kind: str, path: str, mode: str, at: int) -> None:
    """Run one turn and die at the `at`-th entry to or exit from SQLite (0: count them instead)."""
    seen = itertools.count(1)
    reached = 0

    def watch(_: FrameType, event: str, called: Any) -> None:
        nonlocal reached
        owner = event.startswith("c_") and getattr(called, "__self__", None)
        if isinstance(owner, sqlite3.Connection | sqlite3.Cursor):
            reached = next(seen)
            if reached == at:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(watch)
    sys.setprofile(watch)
    graph = builder().compile(checkpointer=acknowledge_calls(open_store(kind, path)))
    acknowledge("started", turn=1)
    graph.invoke(turn_input(1), thread("t"), durability=mode)
    acknowledge("finished", turn=1)
    acknowledge("statements", count=reached)


def put_forever(kind: str, path: str, thread_id: str) -> None:
    """Store checkpoint after checkpoint and its writes, without a graph."""
    saver, config = acknowledge_calls(open_store(kind, path)), thread(thread_id)
    for step in itertools.count():
        config = put(saver, config, step)
        saver.put_writes(config, writes(step), f"task-{step}")


def aput_forever(kind: str, path: str, thread_id: str) -> None:
    """The same for eight threads at once on one event loop."""

    async def store(saver: Saver, config: Config) -> None:
        for step in itertools.count():
            config = await aput(saver, config, step)
            await saver.aput_writes(config, writes(step), f"task-{step}")

    async def run() -> None:
        saver = acknowledge_calls(open_store(kind, path))
        await asyncio.gather(*(store(saver, thread(f"{thread_id}.{n}")) for n in range(8)))

    asyncio.run(run())


# -- jobs: what many do at once -------------------------------------------------------------------


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0)` to `work(count - 1)` at once; the first error is raised."""
    errors: list[BaseException] = []

    def guarded(n: int) -> None:
        try:
            work(n)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise errors[0]


def crowd(each: str, processes: int, **arguments: Any) -> None:
    """Fork that many children, all released at one instant, and report each that failed."""
    release = time.time() + 0.02 * processes + 0.2
    children = []
    for member in range(processes):
        child = os.fork()
        if child == 0:
            time.sleep(max(0.0, release - time.time()))
            run_and_exit(JOBS[each], member=member, **arguments)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    acknowledge("crowd", failed=sum(code != 0 for code in codes), codes=sorted(set(codes)))


def open_at_once(kind: str, path: str, threads: int, member: int) -> None:
    """Each thread opens its own saver on a file that does not exist yet, and stores a thread."""

    def first_open(n: int) -> None:
        saver = open_store(kind, path)
        put(saver, thread(f"{member}.{n}"), 0)
        close_store(saver)

    in_threads(threads, first_open)


def write_at_once(kind: str, path: str, threads: int, steps: int, common: str, member: int) -> None:
    """Threads that share a saver: each writes a thread of its own and tasks of a common one."""
    saver = open_store(kind, path)

    def write(n: int) -> None:
        config = thread(f"{member}.{n}")
        for step in range(steps):
            config = put(saver, config, step)
            saver.put_writes(config, writes(step), f"task-{step}")
            task = f"{member}.{n}.{step}"
            saver.put_writes(thread("common", common), [("messages", task)], task)

    in_threads(threads, write)


def invoke_at_once(kind: str, path: str, turns: int, member: int) -> None:
    """Add numbers to one thread that other processes add to as well; tell which were accepted."""
    saver = open_store(kind, path)
    graph = adder().compile(checkpointer=saver)
    for n in range(turns):
        label = f"{member}.{n}"
        try:
            graph.invoke({"log": [label]}, thread("shared"), durability="sync")
        except Exception as error:
            if type(error).__name__ != "ConcurrentUpdate":
                raise
            acknowledge("refused", label=label)
        else:
            acknowledge("accepted", label=label)


def adder() -> StateGraph[Any]:
    """A graph of one node that only keeps what it is told."""
    graph = StateGraph(State)
    return graph.add_node("keep", lambda state: {"turn": 1}).add_edge(START, "keep")


def fork_after_use(kind: str, path: str, busy: bool) -> None:
    """Use a saver, fork by hand and by multiprocessing, and use it on both sides.

    With `busy` another thread of the parent writes all the while, so that the fork finds the
    saver's locks held by a thread that does not exist in the child.
    """
    saver = open_store(kind, path)
    fill(saver, "before")
    done = threading.Event()

    def keep_writing() -> None:
        config = thread("meanwhile")
        for step in itertools.count():
            if done.is_set():
                return
            config = put(saver, config, step)

    def in_child(name: str) -> None:
        assert len(list(saver.list(thread("before")))) == 3
        fill(saver, name)
        asyncio.run(aput(saver, thread(f"{name} async"), 0))
        acknowledge("child", name=name)

    writer = threading.Thread(target=keep_writing)
    if busy:
        writer.start()
    for n in range(5):
        child = os.fork()
        if child == 0:
            run_and_exit(in_child, f"fork {n}")
        put(saver, thread(f"parent {n}"), 0)
        os.waitpid(child, 0)
    process = get_context("fork").Process(target=in_child, args=("multiprocessing",))
    process.start()
    process.join()
    done.set()
    if busy:
        writer.join()
    fill(saver, "after")
    asyncio.run(aput(saver, thread("after async"), 0))
    acknowledge("parent")


POLICIES: tuple[Policy, ...] = (
    KeepLast(1),
    KeepLast(4) & MaxBytes("1 KB"),
    MaxAge("0s"),
    Thin(every="1m"),
    Milestones(),
)


def prune_once(kind: str, path: str, keep: int, stop_at: int, most: int) -> None:
    """Prune every thread, or as many as told, and wait to be killed."""
    pruning.MOST = shortening.MOST = most

    def progress(*done: int) -> None:
        acknowledge("pruned", done=done)
        if stop_at and done[0] == stop_at:
            time.sleep(60)

    saver: Any = open_store(kind, path)
    saver.prune(strategy=KeepLast(keep), progress=progress)
    time.sleep(60)


class Alarm(logging.Handler):
    """Tells of what a list of all threads leaves out."""

    def emit(self, record: logging.LogRecord) -> None:
        acknowledge("failed", error=record.getMessage()[:2000])


def prune_among(kind: str, path: str, turns: int, member: int) -> None:
    """The first two run graphs, the next two prune them all the while, the last one reads."""
    saver: Any = open_store(kind, path)
    graph = builder().compile(checkpointer=saver)
    if member < 2:
        for turn in range(1, turns + 1):
            graph.invoke(turn_input(turn), thread(f"t{member}"), durability="sync")
        return
    logging.getLogger("langgraph_durable").addHandler(Alarm(logging.ERROR))
    dice, ended = random.Random(member), False
    while not ended:
        states = [graph.get_state(thread(f"t{n}")) for n in (0, 1)]
        ended = all(s.values.get("turn") == turns and not s.next for s in states)
        if member < 4:
            saver.prune(strategy=dice.choice(POLICIES))
        else:
            acknowledge("read", count=sum(1 for _ in saver.list(None)))
            for n in (0, 1):
                list(saver.list({"configurable": {"thread_id": f"t{n}"}}))


def hold_lock(path: str, how: str, seconds: float) -> None:
    """Hold the file's lock, as another program might."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute(f"BEGIN {how}")
    acknowledge("held")
    time.sleep(seconds)
    connection.execute("ROLLBACK")
    connection.close()
    acknowledge("released")


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job
    for job in (
        invoke_forever,
        ainvoke_forever,
        invoke_to_statement,
        put_forever,
        aput_forever,
        crowd,
        open_at_once,
        write_at_once,
        invoke_at_once,
        fork_after_use,
        prune_once,
        prune_among,
        hold_lock,
    )
}


if __name__ == "__main__":
    serve(JOBS)
