"""Stories of errors: what is kept, what runs again, and what must not."""

from __future__ import annotations

from collections import Counter
from typing import Any

from langgraph.cache.memory import InMemoryCache
from langgraph.graph import StateGraph
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, interrupt
from play import Log, Play, Saver, line, story

TWICE = RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=2, retry_on=OSError)


def failing(play: Play, name: str, times: int = 1) -> Any:
    """A node that fails so many times before it does its work."""
    calls: Counter[str] = Counter()

    def run(state: Any) -> dict[str, Any]:
        calls[name] += 1
        if calls[name] <= times:
            play.ran.append(f"{name} fails")
            raise OSError(f"{name} {calls[name]}")
        return play.node(name)(state)

    return run


@story()
async def an_error_and_a_second_try(play: Play) -> None:
    graph = line(play, "a", ("b", failing(play, "b", 2)), "c")
    await play.fail(OSError, graph, {"log": ["hi"]})
    assert (await play.state(graph)).next == ("b",)
    await play.fail(OSError, graph, None)
    given = await play.run(graph, None)
    assert given["log"] == ["hi", "a", "b", "c"]
    assert play.ran.count("a") == 1


@story()
async def an_error_and_a_new_input(play: Play) -> None:
    graph = line(play, "a", ("b", failing(play, "b")), "c")
    await play.fail(OSError, graph, {"log": ["one"]})
    given = await play.run(graph, {"log": ["two"]})
    assert given["log"] == ["one", "a", "two", "a", "b", "c"]


@story()
async def an_error_mended_by_an_update(play: Play) -> None:
    graph = line(play, "a", ("b", failing(play, "b", 9)), "c")
    await play.fail(OSError, graph, {"log": ["hi"]})
    await play.update(graph, {"log": ["mended"]}, as_node="b")
    given = await play.run(graph, None)
    assert given["log"] == ["hi", "a", "mended", "c"]


@story()
async def an_error_in_the_very_first_node(play: Play) -> None:
    graph = line(play, ("a", failing(play, "a")), "b")
    await play.fail(OSError, graph, {"log": ["hi"]})
    await play.state(graph)
    given = await play.run(graph, None)
    assert given["log"] == ["hi", "a", "b"]


def siblings(play: Play, graph: Any, bad: Any) -> Any:
    """Behind "a": two nodes that are soon done and one, "bad", that then fails."""

    def after_the_others(state: Any) -> Any:
        play.wait_for("left", "right")
        return bad(state)

    for name, action in (("left", play.node("left")), ("right", play.node("right"))):
        graph.add_node(name, action).add_edge("a", name)
    graph.add_node("bad", after_the_others).add_edge("a", "bad")
    return graph.add_node("join", play.node("join")).add_edge(["left", "right", "bad"], "join")


@story()
async def finished_siblings_do_not_run_again(play: Play) -> None:
    graph = siblings(play, line(play, "a"), failing(play, "bad"))
    await play.fail(OSError, graph, {"log": []})
    await play.state(graph)
    given = await play.run(graph, None)
    assert given["log"] == ["a", "bad", "left", "right", "join"]
    assert play.ran.count("left") == play.ran.count("right") == 1


@story()
async def finished_sends_do_not_run_again(play: Play) -> None:
    fail = failing(play, "bad")

    def work(order: dict[str, Any]) -> Any:
        if order["part"] != 2:
            return play.node(f"work {order['part']}")(order)
        play.wait_for("work 0", "work 1", "work 3")
        return fail(order)

    graph = line(play, "plan").add_node("work", work)
    sends = [Send("work", {"part": part}) for part in range(4)]
    graph.add_conditional_edges("plan", lambda state: sends, ["work"])
    await play.fail(OSError, graph, {"log": []})
    given = await play.run(graph, None)
    assert given["log"] == ["plan", "work 0", "work 1", "bad", "work 3"]
    assert play.ran.count("work 0") == play.ran.count("work 3") == 1


@story()
async def an_error_inside_a_child(play: Play) -> None:
    for remembers in (None, True):
        child = line(play, "x", ("y", failing(play, "y")), "z").compile(checkpointer=remembers)
        graph = line(play, "a", ("child", child), "b")
        thread = f"remembers {remembers}"
        await play.fail(OSError, graph, {"log": []}, thread)
        await play.state(graph, thread, subgraphs=True)
        await play.run(graph, None, thread)
        await play.run(graph, {"log": ["again"]}, thread)
    assert play.ran.count("x") == 4


@story()
async def an_error_beside_a_question(play: Play) -> None:
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [f"told {interrupt('what?')}"]}

    graph = line(play, "a").add_node("ask", ask).add_edge("a", "ask")
    graph = siblings(play, graph, failing(play, "bad"))
    await play.fail(OSError, graph, {"log": []})
    await play.state(graph)
    given = await play.run(graph, None)
    assert [each.value for each in given["__interrupt__"]] == ["what?"]
    await play.run(graph, Command(resume="it"))
    assert play.ran.count("left") == 1


@story()
async def retries_within_a_run(play: Play) -> None:
    graph = line(play, "a")
    graph.add_node("b", failing(play, "b"), retry_policy=TWICE).add_edge("a", "b")
    child = line(play, "x", ("y", failing(play, "y"))).compile()
    graph.add_node("child", child, retry_policy=TWICE).add_edge("b", "child")
    graph.add_node("c", failing(play, "c", 3), retry_policy=TWICE).add_edge("child", "c")
    await play.fail(OSError, graph, {"log": []})
    await play.run(graph, None)
    await play.run(graph, {"log": ["again"]})


@story()
async def a_handler_for_errors(play: Play) -> None:
    def handle(state: Any) -> Command[Any]:
        return Command(update=play.node("handled")(state), goto="c")

    graph = line(play, "a")
    graph.add_node("b", failing(play, "b", 9), error_handler=handle).add_edge("a", "b")
    graph.add_node("c", play.node("c"))
    for turn in range(2):
        given = await play.run(graph, {"log": [f"turn {turn}"]})
    assert given["log"][-3:] == ["a", "handled", "c"]


@story()
async def cached_nodes(play: Play) -> None:
    builder = StateGraph(Log).add_node("a", play.node("a"), cache_policy=CachePolicy())
    builder.set_entry_point("a").add_node("b", play.node("b")).add_edge("a", "b")
    cache = InMemoryCache()  # type: ignore[var-annotated]

    def graph(saver: Saver) -> Any:
        return builder.compile(checkpointer=saver, cache=cache)

    for thread in ("one", "two"):
        given = await play.run(graph, {"log": ["hi"]}, thread)
        assert given["log"] == ["hi", "a", "b"]
    assert play.ran.count("a") == 1


@story()
async def a_value_nobody_can_store(play: Play) -> None:
    good = line(play, "a", "b")
    await play.run(good, {"log": ["hi"]})
    bad = line(play, "a", ("b", lambda state: {"log": [lambda: None]}))
    try:
        await play.run(bad, {"log": ["bad"]})
    except TypeError:
        pass
    else:
        raise AssertionError("a function was stored")
    given = await play.run(good, {"log": ["good"]}, "other")
    assert given["log"] == ["good", "a", "b"]
