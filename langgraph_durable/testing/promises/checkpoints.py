"""Promises about one checkpoint: what `put` takes is what `get_tuple` gives."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, Checkpoint

from langgraph_durable.testing.model import Coloured, at, checkpoint, exact, numbered
from langgraph_durable.testing.promises.stage import (
    Another,
    Stage,
    everything,
    load,
    numbers,
    parent_of,
    promise,
    put,
    put_line,
    together,
    values,
    version,
    write,
)


class Checkpoints(Stage):
    """Putting and getting."""

    @promise
    async def test_an_unknown_thread_has_nothing(self, saver: Coloured) -> None:
        assert await saver.get(at("nobody")) is None
        assert await saver.get_tuple(at("nobody")) is None
        assert await saver.list(at("nobody")) == []

    @promise
    async def test_an_unknown_checkpoint_id_gives_none(self, saver: Coloured) -> None:
        await put(saver, "t", 1)
        assert await saver.get(at("t", numbered(2))) is None
        assert await saver.get_tuple(at("t", numbered(2))) is None
        assert await saver.get_tuple(at("t", numbered(1), ns="child")) is None

    @pytest.mark.parametrize("absent", [{}, {"checkpoint_id": None}, {"checkpoint_id": ""}])
    @promise
    async def test_no_checkpoint_id_means_the_latest(
        self, saver: Coloured, absent: dict[str, Any]
    ) -> None:
        await put_line(saver, "t", 3)
        found = await saver.get_tuple(at("t", **absent))
        assert found.config == at("t", numbered(3))

    @promise
    async def test_get_gives_the_checkpoint_of_get_tuple(self, saver: Coloured) -> None:
        await put_line(saver, "t", 2)
        assert await saver.get(at("t")) == (await load(saver, "t")).checkpoint
        assert await saver.get(at("t", numbered(1))) == (await load(saver, "t", 1)).checkpoint

    @promise
    async def test_put_answers_where_the_checkpoint_is(self, saver: Coloured) -> None:
        assert await put(saver, "t", 1) == at("t", numbered(1))
        assert await put(saver, "t", 2, parent=1, ns="a|b:1") == at("t", numbered(2), ns="a|b:1")

    @promise
    async def test_a_checkpoint_comes_back_whole(self, saver: Coloured) -> None:
        given = Checkpoint(
            v=4,
            id=numbered(1),
            ts="2026-01-01T00:00:00.000001+00:00",
            channel_values={"a": [1, {"b": b"\x00"}], "c": "text"},
            channel_versions={"a": version(2), "c": version(1), "empty": version(1)},
            versions_seen={"__input__": {}, "node": {"a": version(1)}},
            updated_channels=["a", "c"],
        )
        metadata = {"source": "loop", "step": 3, "parents": {"": "x"}, "extra": [1, None]}
        await saver.put(at("t"), copy.deepcopy(given), metadata, dict(given["channel_versions"]))
        found = await load(saver, "t")
        assert found.config == at("t", numbered(1))
        assert {key: found.checkpoint[key] for key in given} == given  # type: ignore[literal-required]
        assert found.metadata == metadata
        assert found.parent_config is None
        assert found.pending_writes == []

    @promise
    async def test_put_leaves_its_arguments_alone(self, saver: Coloured) -> None:
        await put(saver, "t", 1, {"old": 0})
        versions = {"a": version(2), "old": version(1)}
        given = (
            at("t", numbered(1)),
            checkpoint(numbered(2), {"a": [HumanMessage("x", id="1")]}, versions),
            {"source": "loop", "nested": {"a": [1]}},
            {"a": version(2)},
        )
        before = exact(copy.deepcopy(given))
        await saver.put(*given)
        assert exact(given) == before

    @promise
    async def test_values_keep_their_types(self, saver: Coloured) -> None:
        given = {
            "text": "ü\u2028",
            "number": 2**60,
            "real": 0.1,
            "flag": True,
            "bytes": b"\x00\xff",
            "list": [1, "1", 1.0, None, [], {}],
            "dict": {"": None, "a": {"b": [False]}},
            "messages": [HumanMessage("hi", id="1"), AIMessage("yo", id="2", name="bot")],
            "empty list": [],
            "empty text": "",
        }
        await put(saver, "t", 1, given)
        found = await values(saver, "t")
        assert {key: exact(found[key]) for key in found} == {k: exact(v) for k, v in given.items()}

    @promise
    async def test_the_parent_comes_from_the_config_of_put(self, saver: Coloured) -> None:
        await put_line(saver, "t", 2)
        await put(saver, "t", 3, parent=1)
        assert (await load(saver, "t", 1)).parent_config is None
        assert (await load(saver, "t", 2)).parent_config == at("t", numbered(1))
        assert (await load(saver, "t", 3)).parent_config == at("t", numbered(1))

    @promise
    async def test_namespaces_are_apart(self, saver: Coloured) -> None:
        for n, ns in enumerate(["", "child", "child|grandchild", "child:1"], 1):
            await put(saver, "t", n, {"a": ns}, ns=ns)
            await put(saver, "t", 9, {"a": f"9 of {ns}"}, ns=ns, parent=n)
        for n, ns in enumerate(["", "child", "child|grandchild", "child:1"], 1):
            assert await values(saver, "t", ns=ns) == {"a": f"9 of {ns}"}
            assert await values(saver, "t", n, ns=ns) == {"a": ns}
            assert (await load(saver, "t", ns=ns)).parent_config == at("t", numbered(n), ns=ns)

    @promise
    async def test_thread_ids_are_taken_literally(self, saver: Coloured) -> None:
        threads = ["t", "T", "t ", "t%", "t_", "t'", 't"', "t:", "t::x", "t/../t", "*", "ü", "{t}"]
        for thread in threads:
            await put(saver, thread, 1, {"a": thread})
        for thread in threads:
            assert await values(saver, thread) == {"a": thread}
            assert await numbers(saver, at(thread)) == [1]
        await saver.delete_thread("t%")
        assert await saver.get_tuple(at("t%")) is None
        assert len(await saver.list(None)) == len(threads) - 1

    @promise
    async def test_none_is_a_value(self, saver: Coloured) -> None:
        await put(saver, "t", 1, {"a": None})
        assert await values(saver, "t") == {"a": None}

    @promise
    async def test_a_version_without_a_value_means_absent(self, saver: Coloured) -> None:
        await put(saver, "t", 1, {"a": 1, "b": 2})
        versions = {"a": version(2), "b": version(1)}
        await saver.put(
            at("t", numbered(1)),
            checkpoint(numbered(2), {"b": 2}, versions),
            {},
            {"a": version(2)},
        )
        found = await load(saver, "t")
        assert found.checkpoint["channel_values"] == {"b": 2}
        assert found.checkpoint["channel_versions"] == versions

    @promise
    async def test_a_value_shows_in_every_later_checkpoint_of_its_version(
        self, saver: Coloured, another: Another
    ) -> None:
        await put(saver, "t", 1, {"a": ["one"], "b": {"k": "one"}})
        await put(saver, "t", 2, {"b": {"k": "two"}}, parent=1, inherits={"a": 1})
        await put(another(), "t", 3, parent=2, inherits={"a": 1, "b": 2})
        assert await values(saver, "t", 2) == {"a": ["one"], "b": {"k": "two"}}
        assert await values(saver, "t", 3) == {"a": ["one"], "b": {"k": "two"}}
        assert await values(saver, "t", 1) == {"a": ["one"], "b": {"k": "one"}}

    @promise
    async def test_a_channel_no_longer_named_is_gone(self, saver: Coloured) -> None:
        await put(saver, "t", 1, {"a": 1, "b": 2})
        await put(saver, "t", 2, parent=1, inherits={"a": 1})
        assert await values(saver, "t") == {"a": 1}

    @promise
    async def test_putting_an_id_again_replaces_it(self, saver: Coloured) -> None:
        await put_line(saver, "t", 2)
        await put(saver, "t", 3, {"a": "old", "b": "old"}, parent=1, metadata={"try": 1})
        await write(saver, "t", 3, [("a", "written")])
        again = checkpoint(numbered(3), {"a": "new"}, {"a": version(4)})
        await saver.put(at("t", numbered(2)), again, {"try": 2}, {"a": version(4)})
        assert await numbers(saver, at("t")) == [3, 2, 1]
        found = await load(saver, "t", 3)
        assert found.checkpoint["channel_values"] == {"a": "new"}
        assert found.metadata == {"try": 2}
        assert found.parent_config == at("t", numbered(2))
        assert found.pending_writes == [("task", "a", "written")]

    @promise
    async def test_what_is_stored_never_changes(self, saver: Coloured) -> None:
        await put_line(saver, "t", 5)
        await put(saver, "t", 6, {"items": ["replaced"]}, parent=5)
        await put(saver, "t", 7, {"items": ["item 0", "forked"]}, parent=1)
        for n in range(1, 6):
            assert await values(saver, "t", n) == {"items": [f"item {k}" for k in range(n)]}

    @promise
    async def test_what_was_put_may_be_changed_afterwards(self, saver: Coloured) -> None:
        message = AIMessage("first", id="1")
        state: dict[str, Any] = {"messages": [message], "facts": {"a": [1]}}
        await put(saver, "t", 1, state)
        message.content = "edited in place"
        state["facts"]["a"].append(2)
        await put(saver, "t", 2, state, parent=1)
        state["messages"].clear()
        state["facts"].clear()
        assert await values(saver, "t", 1) == {
            "messages": [AIMessage("first", id="1")],
            "facts": {"a": [1]},
        }
        assert await values(saver, "t", 2) == {
            "messages": [AIMessage("edited in place", id="1")],
            "facts": {"a": [1, 2]},
        }

    @promise
    async def test_what_is_handed_out_is_fresh(self, saver: Coloured) -> None:
        given = {"messages": [HumanMessage("hi", id="1")], "facts": {"a": {"b": []}}}
        await put(saver, "t", 1, given, metadata={"nested": {"a": [1]}})
        await write(saver, "t", 1, [("facts", {"a": []})])
        before = copy.deepcopy(await everything(saver, "t"))
        for found in [await load(saver, "t"), await load(saver, "t", 1), *(await saver.list(None))]:
            found.checkpoint["channel_values"]["messages"][0].content = "changed"
            found.checkpoint["channel_values"]["messages"].append("more")
            found.checkpoint["channel_values"]["facts"]["a"]["b"].append(1)
            found.checkpoint["channel_versions"].clear()
            found.checkpoint["versions_seen"]["node"] = {}
            found.metadata["nested"]["a"].clear()  # type: ignore[typeddict-item]
            assert found.pending_writes
            found.pending_writes[0][2]["a"].append(1)
            found.pending_writes.clear()
            found.config["configurable"].clear()
        assert await everything(saver, "t") == before
        await put(saver, "t", 2, {"facts": given["facts"]}, parent=1, inherits={"messages": 1})
        assert await values(saver, "t") == given

    @promise
    async def test_another_saver_of_the_store_reads_the_same(
        self, saver: Coloured, another: Another
    ) -> None:
        await put_line(saver, "t", 3)
        await put(saver, "t", 4, {"a": 1}, ns="child")
        await write(saver, "t", 3, [("a", 1)])
        assert await everything(another(), "t") == await everything(saver, "t")

    @promise
    async def test_two_savers_may_take_turns(self, saver: Coloured, another: Another) -> None:
        savers = [saver, another()]
        items: list[str] = []
        for n in range(1, 11):
            items = [*items[n % 4 == 0 :], f"item {n}"]
            await put(savers[n % 2], "t", n, {"items": items}, parent=n - 1 or None)
            for reader in savers:
                assert await values(reader, "t") == {"items": items}

    @promise
    async def test_both_colours_see_one_store(self, saver: Coloured) -> None:
        await put_line(saver, "t", 2)
        if saver.colour == "async":
            in_thread = await asyncio.to_thread(saver.saver.get_tuple, at("t"))
            assert in_thread == await load(saver, "t")
        else:
            assert asyncio.run(saver.saver.aget_tuple(at("t"))) == await load(saver, "t")

    @promise
    async def test_a_sync_call_on_a_running_loop_works_or_raises(self, saver: Coloured) -> None:
        """It never waits for the loop that it blocks itself."""
        await put(saver, "t", 1)

        async def call_in_the_loop() -> None:
            try:
                saver.saver.get_tuple(at("t"))
                saver.saver.put(at("t", numbered(1)), checkpoint(numbered(2)), {}, {})
            except Exception:
                pass
            assert await saver.saver.aget_tuple(at("t")) is not None

        if saver.colour == "async":
            await call_in_the_loop()
        else:
            asyncio.run(call_in_the_loop())

    @promise
    async def test_puts_at_once_are_all_stored(self, saver: Coloured) -> None:
        places = [(thread, ns, n) for thread in "ab" for ns in ("", "x") for n in range(1, 9)]

        def act(thread: str, ns: str, n: int) -> Any:
            return lambda: put(saver, thread, n, {"a": n, "b": [n] * n}, ns=ns)

        await together(saver, [act(*place) for place in places])
        for thread, ns, n in places:
            assert await values(saver, thread, n, ns=ns) == {"a": n, "b": [n] * n}
            assert await numbers(saver, at(thread, ns=ns)) == list(range(8, 0, -1))


async def merged(
    saver: Coloured, own: dict[str, Any], run: dict[str, Any] | None = None, **configurable: Any
) -> Any:
    """The metadata read back after a put with these three sources."""
    config = at("t", **configurable)
    if run is not None:
        config["metadata"] = run
    await saver.put(config, checkpoint(numbered(1)), own, {})
    return (await load(saver, "t")).metadata


class Metadata(Stage):
    """What LangGraph merges into a checkpoint's metadata."""

    @promise
    async def test_metadata_is_the_puts_own_then_the_runs_then_configurables(
        self, saver: Coloured
    ) -> None:
        run = {"a": "run", "b": "run"}
        found = await merged(saver, {"a": "own"}, run, a="conf", b="conf", c="conf")
        assert found == {"a": "own", "b": "run", "c": "conf"}

    @promise
    async def test_only_scalars_are_copied(self, saver: Coloured) -> None:
        scalars: dict[str, Any] = {"text": "a", "whole": 1, "real": 0.5, "flag": False}
        others: dict[str, Any] = {
            "none": None,
            "list": [1],
            "dict": {"a": 1},
            "bytes": b"x",
            "object": object(),
        }
        assert await merged(saver, {}, {**scalars, **others}) == scalars
        assert await merged(saver, {}, **scalars, **others) == scalars

    @promise
    async def test_what_belongs_to_langgraph_is_not_copied(self, saver: Coloured) -> None:
        private = dict.fromkeys([*EXCLUDED_METADATA_KEYS, "__pregel_x", "__"], "x")
        inert = {k: v for k, v in private.items() if not k.startswith(("thread", "checkpoint"))}
        assert await merged(saver, {}, private, user="u", **inert) == {"user": "u"}

    @promise
    async def test_the_run_id_survives(self, saver: Coloured) -> None:
        assert await merged(saver, {"run_id": "own"}, {"run_id": "run"}) == {"run_id": "own"}
        assert await merged(saver, {}, {"run_id": "run"}) == {"run_id": "run"}
        assert await merged(saver, {}, run_id="conf") == {"run_id": "conf"}

    @promise
    async def test_list_shows_merged_metadata_and_filters_by_it(self, saver: Coloured) -> None:
        await merged(saver, {"step": 1}, {"run_id": "r"}, user="u")
        for wanted in ({"run_id": "r"}, {"user": "u", "step": 1}):
            (found,) = await saver.list(None, filter=wanted)
            assert found.metadata == {"step": 1, "run_id": "r", "user": "u"}
        assert parent_of(found) is None
