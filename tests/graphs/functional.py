"""Stories of the functional API: entrypoints, tasks, `previous`, interrupts and second tries."""

from __future__ import annotations

import itertools
from typing import Any

from langgraph.func import entrypoint, task
from langgraph.types import Command, RetryPolicy, interrupt
from play import Graph, Play, line, story


def flow(function: Any) -> Graph:
    """The same workflow on any saver."""
    return lambda saver: entrypoint(checkpointer=saver)(function)


def recorded(play: Play, **options: Any) -> Any:
    """A task that leaves its name in `ran`."""

    @task(**options)
    def work(name: str) -> str:
        play.ran.append(name)
        return f"{name} done"

    return work


@story()
async def a_workflow_that_remembers_its_last_result(play: Play) -> None:
    work = recorded(play)

    def body(number: int, *, previous: list[str] | None = None) -> Any:
        done = work(f"task {number}").result()
        return entrypoint.final(value=done, save=[*(previous or []), done])

    graph = flow(body)
    for number in range(3):
        assert await play.run(graph, number) == f"task {number} done"
    assert (await play.state(graph)).values == "task 2 done"


@story()
async def a_workflow_of_many_tasks(play: Play) -> None:
    work = recorded(play)

    def body(count: int, *, previous: Any = None) -> Any:
        futures = [work(f"task {n}") for n in range(count)]
        return {"done": [future.result() for future in futures], "before": previous}

    graph = flow(body)
    await play.run(graph, 3)
    await play.run(graph, 10)


@story()
async def a_workflow_that_asks(play: Play) -> None:
    work = recorded(play)

    @task
    def inquire(question: str) -> str:
        return f"{question} {interrupt(question)}"

    def body(topic: str) -> Any:
        first = work(f"about {topic}").result()
        return [first, interrupt("you?"), inquire("they?").result(), work("last").result()]

    graph = flow(body)
    for topic in ("one", "two"):
        await play.run(graph, topic)
        await play.state(graph)
        await play.run(graph, Command(resume="me"))
        given = await play.run(graph, Command(resume="them"))
        assert given == [f"about {topic} done", "me", "they? them", "last done"]
    assert play.ran.count("about one") == play.ran.count("last") // 2 == 1


@story("sync", "async")
async def a_workflow_that_fails(play: Play) -> None:
    work, calls = recorded(play), itertools.count()

    def body(topic: str) -> Any:
        first = work("first").result()
        if next(calls) < 1:
            raise OSError("not yet")
        return [first, work("second").result()]

    graph = flow(body)
    await play.fail(OSError, graph, "go")
    await play.state(graph)
    assert await play.run(graph, None) == ["first done", "second done"]
    assert play.ran.count("first") == 1
    await play.run(graph, "again")


@story()
async def a_task_that_is_tried_again(play: Play) -> None:
    calls = itertools.count()
    twice = RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=2, retry_on=OSError)

    @task(retry_policy=twice)
    def shaky(name: str) -> str:
        play.ran.append(name)
        if next(calls) % 2 == 0:
            raise OSError(name)
        return name

    graph = flow(lambda topic: [shaky("one").result(), shaky("two").result()])
    assert await play.run(graph, "go") == ["one", "two"]
    assert len(play.ran) == 4


@story()
async def a_workflow_inside_a_graph_inside_a_workflow(play: Play) -> None:
    work = recorded(play)

    @entrypoint()
    def inner(state: dict[str, Any]) -> dict[str, Any]:
        return {"log": [work("inner").result(), interrupt("sure?")]}

    graph = line(play, "a", ("inner", inner), "b").compile()
    outer = flow(lambda topic: graph.invoke({"log": [topic, work("outer").result()]}))
    await play.run(outer, "topic")
    await play.state(outer, subgraphs=True)
    given = await play.run(outer, Command(resume="yes"))
    assert given["log"] == ["topic", "outer done", "a", "inner done", "yes", "b"]
    assert play.ran.count("inner") == play.ran.count("outer") == 1


@story("sync", "async", looks_back=True)
async def a_workflow_told_again_from_an_old_checkpoint(play: Play) -> None:
    work = recorded(play)

    def body(number: int, *, previous: int | None = None) -> int:
        work(f"add {number}").result()
        return (previous or 0) + number

    graph = flow(body)
    for number in (1, 10, 100):
        await play.run(graph, number)
    history = await play.history()
    old = next(s for s in history if s.metadata["source"] == "loop" and s.values == 11)
    assert await play.run(graph, 1000, old.config) == 1011
    assert await play.run(graph, 1) == 1012
