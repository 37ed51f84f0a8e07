"""Everything that clients of a LangGraph Server do, through the SDK, on our savers.

One `langgraph dev` for each backend, with one loop for all runs and with a loop and a thread for
each worker. All threads of these tests live in it together.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import servers
from dev import DevServer
from langgraph_sdk import get_client
from langgraph_sdk.errors import NotFoundError

ROUND = ["first", "waited", "last"]
KINDS = {
    "sqlite": ("sqlite", False),
    "sqlite, isolated loops": ("sqlite", True),
    "valkey": ("valkey", False),
    "valkey, isolated loops": ("valkey", True),
}


def store_url(backend: str, folder: Path) -> str:
    if backend == "sqlite":
        return "sqlite:///agent.db?durability=normal&busy_timeout=60"
    return f"{servers.shared(backend).url}?prefix={servers.prefix_for(folder)}"


@pytest.fixture(scope="session", params=KINDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DevServer]:
    backend, isolated = KINDS[request.param]
    folder = tmp_path_factory.mktemp("dev")
    server = DevServer(folder, store_url(backend, folder), isolated=isolated)
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def client(server: DevServer) -> AsyncIterator[Any]:
    async with get_client(url=server.url) as client:
        yield client


@pytest.fixture
async def thread(client: Any) -> str:
    return str((await client.threads.create())["thread_id"])


@pytest.fixture
def held(server: DevServer, thread: str) -> Iterator[str]:
    """A thread whose runs stand still in `wait`."""
    server.hold(thread)
    yield thread
    server.release(thread)


async def until(true: Callable[[], bool], what: str) -> None:
    for _ in range(6000):
        if true():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"{what} did not happen")


async def tell(client: Any, thread: str, *log: str, config: Any = None, **more: Any) -> Any:
    return await client.runs.wait(thread, "story", input={"log": list(log), **more}, config=config)


async def start(client: Any, server: DevServer, thread: str, **how: Any) -> str:
    """A run that stands still in `wait`."""
    before = server.ledger(thread).count("wait")
    run = await client.runs.create(thread, "story", **how)
    await until(lambda: server.ledger(thread).count("wait") > before, "the wait of a run")
    return str(run["run_id"])


async def log_of(client: Any, thread: str, **which: Any) -> list[str]:
    return list((await client.threads.get_state(thread, **which))["values"].get("log", []))


async def test_a_run_and_a_stream(client: Any, thread: str) -> None:
    assert (await tell(client, thread, "hi"))["log"] == ["hi", *ROUND]
    modes = ["values", "updates"]
    parts = [
        part
        async for part in client.runs.stream(
            thread, "story", input={"log": ["again"]}, stream_mode=modes
        )
    ]
    assert "error" not in {part.event for part in parts}
    values = [part.data["log"] for part in parts if part.event == "values"]
    assert values[-1] == ["hi", *ROUND, "again", *ROUND]
    assert next(part.data for part in parts if part.event == "updates") == {
        "first": {"log": ["first"]}
    }


async def test_credentials_of_a_run_stay_out_of_its_checkpoints(client: Any, thread: str) -> None:
    config = {"configurable": {"openai_api_key": "sk-1", "user": "ana"}}
    await tell(client, thread, "hi", config=config)
    history = await client.threads.get_history(thread, limit=100)
    assert {state["metadata"]["user"] for state in history} == {"ana"}
    assert "sk-1" not in str(history)


async def test_an_interrupt_and_its_answer(client: Any, server: DevServer, thread: str) -> None:
    stopped = await tell(client, thread, "hi", ask=True)
    assert stopped["__interrupt__"][0]["value"] == "what?"
    state = await client.threads.get_state(thread)
    assert state["next"] == ["ask"]
    assert state["interrupts"][0]["value"] == "what?"
    assert (await client.threads.get(thread))["status"] == "interrupted"

    ended = await client.runs.wait(thread, "story", command={"resume": "it"})
    assert ended["log"] == ["hi", "first", "it", "waited", "last"]
    assert server.ledger(thread) == ["first", "answered it", "wait", "last"]


async def test_history_state_at_a_checkpoint_update_and_fork(client: Any, thread: str) -> None:
    await tell(client, thread, "hi")
    history = await client.threads.get_history(thread, limit=100)
    assert [state["next"] for state in history] == [
        *([], ["last"], ["wait"], ["ask"], ["first"], ["__start__"])
    ]
    page = await client.threads.get_history(thread, limit=2, before=history[1]["checkpoint"])
    assert page == history[2:4]
    old = history[2]
    same = await client.threads.get_state(thread, checkpoint=old["checkpoint"])
    assert (same["values"], same["next"]) == (old["values"], ["wait"])

    await client.threads.update_state(thread, {"log": ["by hand"]}, as_node="last")
    assert await log_of(client, thread) == ["hi", *ROUND, "by hand"]

    fork = await client.threads.update_state(
        thread, {"log": ["fork"]}, checkpoint=old["checkpoint"]
    )
    ended = await client.runs.wait(thread, "story", checkpoint=fork["checkpoint"])
    assert ended["log"] == ["hi", "first", "fork", "waited", "last"]
    replayed = await client.runs.wait(thread, "story", checkpoint=old["checkpoint"])
    assert replayed["log"] == ["hi", *ROUND] == await log_of(client, thread)


async def test_a_copy_has_its_own_life(client: Any, thread: str) -> None:
    await tell(client, thread, "hi", ask=True)
    copy = (await client.threads.copy(thread))["thread_id"]
    source = await client.threads.get_history(thread, limit=100)
    target = await client.threads.get_history(copy, limit=100)
    ids = [[state["checkpoint"]["checkpoint_id"] for state in h] for h in (source, target)]
    assert ids[0] == ids[1]
    await client.runs.wait(copy, "story", command={"resume": "copied"})
    assert "copied" in await log_of(client, copy)
    assert await log_of(client, thread) == ["hi", "first"]


async def test_a_cancelled_run_leaves_what_it_finished(
    client: Any, server: DevServer, held: str
) -> None:
    run = await start(client, server, held, input={"log": ["hi"]})
    await client.runs.cancel(held, run, wait=True)
    assert await log_of(client, held) == ["hi", "first"]
    server.release(held)
    ended = await client.runs.wait(held, "story", input=None)
    assert ended["log"] == ["hi", *ROUND]
    assert server.ledger(held) == ["first", "wait", "wait", "last"]


async def test_a_cancelled_answer_stays_given(client: Any, server: DevServer, held: str) -> None:
    await tell(client, held, "hi", ask=True)
    run = await start(client, server, held, command={"resume": "it"})
    await client.runs.cancel(held, run, wait=True)
    state = await client.threads.get_state(held)
    assert (state["values"]["log"], state["next"]) == (["hi", "first", "it"], ["wait"])
    server.release(held)
    ended = await client.runs.wait(held, "story", input=None)
    assert ended["log"] == ["hi", "first", "it", "waited", "last"]
    assert server.ledger(held) == ["first", "answered it", "wait", "wait", "last"]


async def test_a_rolled_back_run_leaves_nothing(client: Any, server: DevServer, held: str) -> None:
    server.release(held)
    await tell(client, held, "kept")
    before = await client.threads.get_history(held, limit=100)
    server.hold(held)
    run = await start(client, server, held, input={"log": ["regretted"]})
    await client.runs.cancel(held, run, wait=True, action="rollback")
    await _gone(client, held, run)
    assert await client.threads.get_history(held, limit=100) == before
    server.release(held)
    assert (await tell(client, held, "then"))["log"] == ["kept", *ROUND, "then", *ROUND]


async def test_a_rolled_back_answer_leaves_the_question(
    client: Any, server: DevServer, held: str
) -> None:
    await tell(client, held, "hi", ask=True)
    run = await start(client, server, held, command={"resume": "wrong"})
    await client.runs.cancel(held, run, wait=True, action="rollback")
    await _gone(client, held, run)
    state = await client.threads.get_state(held)
    assert state["next"] == ["ask"]
    assert [i["value"] for i in state["interrupts"]] == ["what?"]
    server.release(held)
    ended = await client.runs.wait(held, "story", command={"resume": "right"})
    assert ended["log"] == ["hi", "first", "right", "waited", "last"]


async def _gone(client: Any, thread: str, run: str) -> None:
    """A run that is rolled back is forgotten a moment after it was cancelled."""
    for _ in range(6000):
        try:
            await client.runs.get(thread, run)
        except NotFoundError:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the run that was rolled back is still there")


async def test_a_new_run_may_roll_back_the_one_before(
    client: Any, server: DevServer, held: str
) -> None:
    regretted = await start(client, server, held, input={"log": ["regretted"]})
    run = await client.runs.create(
        held, "story", input={"log": ["instead"]}, multitask_strategy="rollback"
    )
    await _gone(client, held, regretted)
    server.release(held)
    await client.runs.join(held, run["run_id"])
    assert await log_of(client, held) == ["instead", *ROUND]


async def test_a_new_run_may_interrupt_the_one_before(
    client: Any, server: DevServer, held: str
) -> None:
    cut_short = await start(client, server, held, input={"log": ["one"]})
    run = await client.runs.create(
        held, "story", input={"log": ["two"]}, multitask_strategy="interrupt"
    )
    await client.runs.join(held, cut_short)
    assert (await client.runs.get(held, cut_short))["status"] == "interrupted"
    server.release(held)
    await client.runs.join(held, run["run_id"])
    assert await log_of(client, held) == ["one", "first", "two", *ROUND]


async def test_a_deleted_run_takes_its_checkpoints_with_it(client: Any, thread: str) -> None:
    await tell(client, thread, "one")
    run = await client.runs.create(thread, "story", input={"log": ["two"]})
    await client.runs.join(thread, run["run_id"])
    await client.runs.delete(thread, run["run_id"])
    assert await log_of(client, thread) == ["one", *ROUND]
    assert len(await client.threads.get_history(thread, limit=100)) == 6


async def test_a_deleted_thread_is_gone(client: Any, thread: str) -> None:
    await tell(client, thread, "hi")
    await client.threads.delete(thread)
    with pytest.raises(NotFoundError):
        await client.threads.get_state(thread)
    await client.threads.create(thread_id=thread)
    assert await log_of(client, thread) == []
    assert await client.threads.get_history(thread) == []


async def test_many_threads_at_once(client: Any) -> None:
    threads = [(await client.threads.create())["thread_id"] for _ in range(12)]
    ended = await asyncio.gather(*(tell(client, thread, thread) for thread in threads))
    assert [state["log"] for state in ended] == [[thread, *ROUND] for thread in threads]


async def test_a_long_talk_in_a_delta_channel(client: Any, thread: str) -> None:
    runs, turns = 3, 40
    said: list[str] = []
    for run in range(runs):
        given = {"log": [f"run {run}"], "turns": turns}
        ended = await client.runs.wait(thread, "talk", input=given, config={"recursion_limit": 99})
        said += [f"run {run}", *(f"turn {len(said) + turn}" for turn in range(1, turns))]
        assert ended["log"] == said
    assert await log_of(client, thread) == said
    history = await client.threads.get_history(thread, limit=1000)
    ends = [state["values"]["log"] for state in history if not state["next"]]
    assert ends == [said[: run * turns] for run in range(runs, 0, -1)]
    middle = history[len(history) // 2]
    assert await log_of(client, thread, checkpoint=middle["checkpoint"]) == middle["values"]["log"]


async def noted(server: DevServer) -> None:
    """The server's own list of runs is on disk as it is now: it was begun after this call."""
    [list_of_runs] = server.folder.glob(".langgraph_api/.langgraph_ops.pckl")
    for _ in range(2):
        before = list_of_runs.stat().st_mtime_ns
        await until(lambda t=before: list_of_runs.stat().st_mtime_ns != t, "a list of runs")  # type: ignore[misc]


async def test_a_killed_server_goes_on_with_its_runs(server: DevServer) -> None:
    async with get_client(url=server.url) as client:
        threads = [(await client.threads.create())["thread_id"] for _ in range(2)]
        runs = []
        for thread in threads:
            server.hold(thread)
            runs.append(await start(client, server, thread, input={"log": ["hi"]}))
        asked = (await client.threads.create())["thread_id"]
        await tell(client, asked, "hi", ask=True)
        await noted(server)
    server.kill()
    for thread in threads:
        server.release(thread)
    server.start()
    async with get_client(url=server.url) as client:
        for thread, run in zip(threads, runs, strict=True):
            await client.runs.join(thread, run)
            assert await log_of(client, thread) == ["hi", *ROUND]
            assert server.ledger(thread) == ["first", "wait", "wait", "last"]
        ended = await client.runs.wait(asked, "story", command={"resume": "it"})
        assert ended["log"] == ["hi", "first", "it", "waited", "last"]


async def test_it_ends_when_told_with_runs_under_way(server: DevServer) -> None:
    async with get_client(url=server.url) as client:
        thread = (await client.threads.create())["thread_id"]
        server.hold(thread)
        await start(client, server, thread, input={"log": ["hi"]})
    server.release(thread)
    assert server.stop() in (0, -signal.SIGTERM)
    *_, last_words = server.log.partition("Shutting down background workers")
    assert "persistence flush loop exiting" in last_words
    assert "BlockingError" not in server.log
    server.start()
