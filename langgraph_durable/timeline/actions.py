"""Acting on a thread from a timeline: fork, replay, resume, in both colours.

What is asked is checked before anything is written; the writing itself is LangGraph's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.timeline.headers import config_of

if TYPE_CHECKING:
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


def _check_target(step: Step, to_thread: str | None) -> None:
    if to_thread is None:
        return
    if not isinstance(to_thread, str) or not to_thread:
        raise ConfigurationError(f"to_thread is the id of a new thread, not {to_thread!r}")
    if step.source == "input" or not isinstance(step.values, Mapping):
        raise ConfigurationError(
            f"{step.label} has no state of channels that a new thread could begin with: "
            "fork from the step after it"
        )


def _check_new(to_thread: str, found: Any) -> None:
    if found:
        raise ConfigurationError(f"the thread {to_thread!r} exists already: fork into a new one")


def _updates(
    step: Step, values: Any, as_node: str | None, to_thread: str | None
) -> Iterator[tuple[Any, ...]]:
    """The arguments of each `update_state`: for a new thread, the state first and then the change.

    Without a history there is nothing that LangGraph could tell the last node from, so it is told.
    """
    if to_thread is None:
        yield step.config, values, as_node
        return
    node = next((one for one in step.nodes if one in step._timeline.graph.nodes), None)
    yield config_of(to_thread), dict(step.values), node
    if values is not None or as_node is not None:
        yield config_of(to_thread), values, as_node or node


def fork(step: Step, values: Any, as_node: str | None, to_thread: str | None) -> Step:
    graph, saver = _from_root(step, "fork"), step._timeline.saver
    _check_node(graph, "as_node", as_node)
    _check_target(step, to_thread)
    if to_thread is not None:
        _check_new(to_thread, saver.get_tuple(config_of(to_thread)))  # type: ignore[arg-type]
    for update in _updates(step, values, as_node, to_thread):
        made = graph.update_state(*update)
    return step._timeline._made(made)


async def afork(step: Step, values: Any, as_node: str | None, to_thread: str | None) -> Step:
    graph, saver = _from_root(step, "fork"), step._timeline.saver
    _check_node(graph, "as_node", as_node)
    _check_target(step, to_thread)
    if to_thread is not None:
        _check_new(to_thread, await saver.aget_tuple(config_of(to_thread)))  # type: ignore[arg-type]
    for update in _updates(step, values, as_node, to_thread):
        made = await graph.aupdate_state(*update)
    return step._timeline._made(made)


def _stops(graph: Any, until: str | None, options: dict[str, Any]) -> dict[str, Any]:
    _check_node(graph, "until", until)
    return options if until is None else {"interrupt_before": [until], **options}


def replay(step: Step, until: str | None, options: dict[str, Any]) -> Any:
    graph = _from_root(step, "replay")
    answer = graph.invoke(None, step.config, **_stops(graph, until, options))
    step._timeline.refresh()
    return answer


async def areplay(step: Step, until: str | None, options: dict[str, Any]) -> Any:
    graph = _from_root(step, "replay")
    answer = await graph.ainvoke(None, step.config, **_stops(graph, until, options))
    step._timeline.refresh()
    return answer


def _command(timeline: Timeline, waiting: Mapping[str, Any], answer: Any) -> Any:
    """The `Command` that answers; raises if it would answer nothing or the wrong thing."""
    from langgraph.types import Command

    if not waiting:
        raise ConfigurationError(
            f"nothing waits for an answer in thread {timeline.thread_id!r}: "
            "tl.latest shows where it stands"
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
    result = graph.invoke(command, config, **options)
    timeline.refresh()
    return result


async def aresume(timeline: Timeline, answer: Any, options: dict[str, Any]) -> Any:
    graph = _graph(timeline, "resume")
    config = config_of(timeline.thread_id)
    command = _command(timeline, waiting(await graph.aget_state(config)), answer)
    result = await graph.ainvoke(command, config, **options)
    timeline.refresh()
    return result
