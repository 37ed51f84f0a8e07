"""Acting on a thread from a timeline: fork, replay, resume, in both colours.

What is asked is checked before anything is written; the writing itself is LangGraph's own.
"""

from __future__ import annotations

from asyncio import to_thread as _in_thread
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.timeline.forking import taken
from langgraph_durable.timeline.headers import config_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from langgraph_durable.timeline.step import Step
    from langgraph_durable.timeline.timeline import Timeline


def _graph(timeline: Timeline, what: str) -> Any:
    if timeline.graph is None:
        raise ConfigurationError(
            f"to {what}, the timeline needs the graph: Timeline(graph, {timeline.thread_id!r}); "
            "saver.timeline(...) only looks"
        )
    return timeline.graph


def _from_root(step: Step, what: str) -> Any:
    graph = _graph(step._timeline, what)
    if step.ns:
        raise ConfigurationError(
            f"cannot {what} from step {step.id} of the sub-graph {step.ns!r}: LangGraph goes on "
            f"from steps of the whole graph; use the step it ran from (its metadata: "
            f"{dict(step.metadata.get('parents') or {})})"
        )
    return graph


def _check_node(graph: Any, what: str, node: str | None) -> None:
    if node is not None and node not in graph.nodes:
        known = sorted(name for name in graph.nodes if not name.startswith("__"))
        raise ConfigurationError(f"{what} names no node of the graph: {node!r}; it has {known}")


def _check_fork(step: Step, as_node: str | None, to_thread: str | None) -> Any:
    """The graph, if all that was asked can be done; nothing is written before."""
    graph = _from_root(step, "fork")
    _check_node(graph, "as_node", as_node)
    if to_thread is not None and (not isinstance(to_thread, str) or not to_thread):
        raise ConfigurationError(f"to_thread is the id of a new thread, not {to_thread!r}")
    step._timeline._whole(step._header)
    if to_thread is not None and step._timeline.saver.get_tuple(_at(to_thread)) is not None:
        raise ConfigurationError(f"the thread {to_thread!r} exists already: fork into a new one")
    return graph


def _at(thread_id: str) -> RunnableConfig:
    return cast("RunnableConfig", config_of(thread_id, ""))


def fork(step: Step, values: Any, as_node: str | None, to_thread: str | None) -> Step:
    graph, saver = _check_fork(step, as_node, to_thread), step._timeline.saver
    if to_thread is None:
        return step._timeline._made(graph.update_state(step.config, values, as_node))
    changed, made = values is not None or as_node is not None, None
    copies = taken(step, changed=changed)
    try:
        for copy in copies:
            made = saver.put(*copy.put(to_thread))
            for writes in copy.writes_by_task():
                saver.put_writes(made, *writes)
        if changed:
            made = graph.update_state(config_of(to_thread), values, as_node)
    except BaseException:
        saver.delete_thread(to_thread)
        raise
    return step._timeline._made(made)


async def afork(step: Step, values: Any, as_node: str | None, to_thread: str | None) -> Step:
    """Whatever is only read is read in a thread: savers may refuse sync calls on their loop."""
    graph, saver = await _in_thread(_check_fork, step, as_node, to_thread), step._timeline.saver
    if to_thread is None:
        made = await graph.aupdate_state(step.config, values, as_node)
        return await _in_thread(step._timeline._made, made)
    changed, made = values is not None or as_node is not None, None
    copies = await _in_thread(taken, step, changed=changed)
    try:
        for copy in copies:
            made = await saver.aput(*copy.put(to_thread))
            for writes in copy.writes_by_task():
                await saver.aput_writes(made, *writes)
        if changed:
            made = await graph.aupdate_state(config_of(to_thread), values, as_node)
    except BaseException:
        await saver.adelete_thread(to_thread)
        raise
    return await _in_thread(step._timeline._made, made)


def _check_replay(step: Step, until: str | None, options: dict[str, Any]) -> tuple[Any, Any]:
    """The graph, and the options with `until` among them."""
    graph = _from_root(step, "replay")
    _check_node(graph, "until", until)
    step._timeline._whole(step._header)
    if until is None:
        return graph, options
    others = options.get("interrupt_before") or ()
    stops = others if isinstance(others, str) else [until, *others]
    return graph, {**options, "interrupt_before": stops}


def replay(step: Step, until: str | None, options: dict[str, Any]) -> Any:
    graph, options = _check_replay(step, until, options)
    try:
        return graph.invoke(None, step.config, **options)
    finally:
        step._timeline.refresh()


async def areplay(step: Step, until: str | None, options: dict[str, Any]) -> Any:
    graph, options = await _in_thread(_check_replay, step, until, options)
    try:
        return await graph.ainvoke(None, step.config, **options)
    finally:
        step._timeline.refresh()


def _command(timeline: Timeline, waiting: Mapping[str, Any], answer: Any) -> Any:
    """The `Command` that answers; raises if it would answer nothing or the wrong thing."""
    from langgraph.types import Command

    if not waiting:
        raise ConfigurationError(
            f"nothing waits for an answer in thread {timeline.thread_id!r}: tl.latest shows where "
            "it stands, and tl.latest.replay() goes on from there (after a fork or an edit, a "
            "question must be asked again)"
        )
    questions = {id: one.value for id, one in waiting.items()}
    by_id = isinstance(answer, Mapping) and bool(answer) and all(map(_is_id, answer))
    if by_id:
        unknown = sorted(set(answer) - set(waiting))
        if unknown:
            raise ConfigurationError(f"nothing with the id {unknown[0]} waits; open: {questions}")
    elif len(waiting) > 1:
        raise ConfigurationError(
            f"{len(waiting)} interrupts wait: answer by id, {{id: answer}}; open: {questions}"
        )
    # LangGraph takes a bare None for no answer, and {} for answers to nothing; by id they count.
    # Anything else goes bare: the questions of old releases are not found by the ids they show.
    if answer is None or (isinstance(answer, Mapping) and not answer):
        answer = dict.fromkeys(waiting, answer)
    return Command(resume=dict(answer) if by_id else answer)


def _is_id(key: Any) -> bool:
    return isinstance(key, str) and len(key) == 32 and not key.strip("0123456789abcdef")


def waiting(snapshot: Any) -> dict[str, Any]:
    """The interrupts of a live snapshot that have no answer yet, by id."""
    return {one.id: one for one in snapshot.interrupts}


def resume(timeline: Timeline, answer: Any, options: dict[str, Any]) -> Any:
    graph = _graph(timeline, "resume")
    config = config_of(timeline.thread_id)
    command = _command(timeline, waiting(graph.get_state(config)), answer)
    try:
        return graph.invoke(command, config, **options)
    finally:
        timeline.refresh()


async def aresume(timeline: Timeline, answer: Any, options: dict[str, Any]) -> Any:
    graph = _graph(timeline, "resume")
    config = config_of(timeline.thread_id)
    command = _command(timeline, waiting(await graph.aget_state(config)), answer)
    try:
        return await graph.ainvoke(command, config, **options)
    finally:
        timeline.refresh()
