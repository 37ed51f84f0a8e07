"""Promises about arguments: what is refused, and that nothing was written then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.testing.model import Coloured, at, checkpoint, numbered
from langgraph_durable.testing.promises.stage import (
    Another,
    Stage,
    everything,
    load,
    numbers,
    promise,
    put,
    put_line,
    values,
    version,
    write,
)

GOOD_IDS = {
    "one letter": "x",
    "1 KiB": "x" * 1024,
    "1 KiB of ü": "ü" * 512,
    "NUL": "\x00",
    "NUL inside": "a\x00b",
    "lone surrogate": "\ud800",
    "surrogates": "a\udfff\ud800b",
    "quotes": "'\"`;--",
    "space": " ",
    "newline": "\n",
    "emoji": "👩‍👩‍👧",
    "pattern": "*?[%_]{}",
}
BAD_IDS = {
    "empty": "",
    "too long": "x" * 1025,
    "too long in bytes": "ü" * 513,
    "None": None,
    "float": 1.5,
    "bytes": b"t",
    "list": ["t"],
    "object": object(),
}

WITH_THREAD: dict[str, Callable[[Coloured, Any], Any]] = {
    "get": lambda s, t: s.get(at(t)),
    "get_tuple": lambda s, t: s.get_tuple(at(t)),
    "list": lambda s, t: s.list(at(t)),
    "put": lambda s, t: s.put(at(t), checkpoint(numbered(1)), {}, {}),
    "put_writes": lambda s, t: s.put_writes(at(t, numbered(1)), [("a", 1)], "task"),
    "delete_thread": lambda s, t: s.delete_thread(t),
    "copy_thread from": lambda s, t: s.copy_thread(t, "new"),
    "copy_thread to": lambda s, t: s.copy_thread("there", t),
    "prune": lambda s, t: s.prune([t], strategy="delete"),
    "history": lambda s, t: s.get_delta_channel_history(config=at(t), channels=["a"]),
}
"""Every call that takes a thread id."""


NO_VERSIONS: list[Any] = [None, b"1", 2**64, -(2**70), (1, 2), [1], {}, 1j, object()]


class Arguments(Stage):
    """Arguments are checked before anything is written."""

    @pytest.mark.parametrize("thread", GOOD_IDS.values(), ids=GOOD_IDS)
    @promise
    async def test_any_short_string_is_a_thread_id(
        self, saver: Coloured, another: Another, thread: str
    ) -> None:
        await put(saver, thread, 1, {"a": thread}, ns="child")
        await put(saver, thread, 2, {"a": thread})
        await write(saver, thread, 2, [("a", 1)])
        for reader in (saver, another()):
            assert await values(reader, thread) == {"a": thread}
            assert await numbers(reader, at(thread, ns=None)) == [2, 1]
            listed = await reader.list(None)
            assert [found.config["configurable"]["thread_id"] for found in listed] == [thread] * 2
        await saver.copy_thread(thread, "copy")
        await saver.delete_thread(thread)
        assert await values(saver, "copy") == {"a": thread}
        assert await saver.get_tuple(at(thread)) is None

    @promise
    async def test_an_int_is_the_same_as_its_text(self, saver: Coloured) -> None:
        for thread in (7, -1, 0, 2**70):
            await put(saver, thread, 1, {"a": 1})
            await put(saver, str(thread), 2, {"a": 2}, parent=1)
            await write(saver, thread, 2, [("a", 1)])
            assert await everything(saver, thread) == await everything(saver, str(thread))
            assert (await load(saver, str(thread))).pending_writes == [("task", "a", 1)]
            await saver.delete_thread(thread)
            assert await saver.get_tuple(at(str(thread))) is None

    @pytest.mark.parametrize("call", WITH_THREAD.values(), ids=WITH_THREAD)
    @pytest.mark.parametrize("thread", BAD_IDS.values(), ids=BAD_IDS)
    @promise
    async def test_a_bad_thread_id_is_refused(
        self, saver: Coloured, call: Callable[[Coloured, Any], Any], thread: Any
    ) -> None:
        await put(saver, "there", 1)
        before = await saver.list(None)
        with pytest.raises(ConfigurationError):
            await call(saver, thread)
        assert await saver.list(None) == before

    @promise
    async def test_a_config_without_a_thread_is_refused(self, saver: Coloured) -> None:
        configs: list[Any] = [{}, {"configurable": {}}, {"configurable": {"checkpoint_ns": ""}}]
        for config in configs:
            with pytest.raises(ConfigurationError):
                await saver.get_tuple(config)
            with pytest.raises(ConfigurationError):
                await saver.put(config, checkpoint(numbered(1)), {}, {})
            with pytest.raises(ConfigurationError):
                await saver.put_writes(config, [("a", 1)], "task")
        assert await saver.list(None) == []

    @promise
    async def test_writes_need_a_checkpoint_id(self, saver: Coloured) -> None:
        for absent in ({}, {"checkpoint_id": None}, {"checkpoint_id": ""}):
            with pytest.raises(ConfigurationError):
                await saver.put_writes(at("t", **absent), [("a", 1)], "task")
        assert await saver.list(None) == []

    @pytest.mark.parametrize("wrong", [5, b"x", ["x"], object()], ids=type)
    @promise
    async def test_namespaces_and_checkpoint_ids_are_text(
        self, saver: Coloured, wrong: Any
    ) -> None:
        for config in (at("t", ns=wrong), at("t", wrong)):
            with pytest.raises(ConfigurationError):
                await saver.get_tuple(config)
            with pytest.raises(ConfigurationError):
                await saver.list(config)
            with pytest.raises(ConfigurationError):
                await saver.put(config, checkpoint(numbered(1)), {}, {})
        with pytest.raises(ConfigurationError):
            await saver.put(at("t"), checkpoint(wrong), {}, {})
        with pytest.raises(ConfigurationError):
            await saver.put_writes(at("t", wrong), [("a", 1)], "task")
        assert await saver.list(None) == []

    @promise
    async def test_malformed_checkpoints_are_refused(self, saver: Coloured) -> None:
        good = checkpoint(numbered(1), {"a": 1}, {"a": version(1)})
        wrong: list[Any] = [
            (None, {}),
            ({"id": numbered(1)}, {}),
            ({**good, "channel_values": None}, {}),
            ({**good, "channel_versions": ["a"]}, {}),
            ({**good, "channel_values": {1: 1}}, {}),
            ({**good, "channel_versions": {None: version(1)}}, {}),
            *(({**good, "channel_versions": {"a": each}}, {}) for each in NO_VERSIONS),
            *(({**good, "versions_seen": {"node": {"a": each}}}, {}) for each in NO_VERSIONS),
            ({**good, "versions_seen": {"node": 1}}, {}),
            ({**good, "versions_seen": {1: {}}}, {}),
            (good, None),
            (good, [("source", "loop")]),
        ]
        for given, metadata in wrong:
            with pytest.raises(ConfigurationError):
                await saver.put(at("t"), given, metadata, {})
        assert await saver.list(None) == []

    @promise
    async def test_malformed_writes_are_refused(self, saver: Coloured) -> None:
        await put(saver, "t", 1)
        config = at("t", numbered(1))
        wrong: list[Any] = [[("a",)], [("a", 1, 2)], [(1, 2)], [(None, 2)], ["ab"], "ab", 5]
        for writes in wrong:
            with pytest.raises(ConfigurationError):
                await saver.put_writes(config, writes, "task")
        for task in ("", None, 5):
            with pytest.raises(ConfigurationError):
                await saver.put_writes(config, [("a", 1)], task)
        assert (await load(saver, "t")).pending_writes == []

    @promise
    async def test_a_wrong_limit_is_refused(self, saver: Coloured) -> None:
        for limit in ("ten", 1.5, [1]):
            with pytest.raises(ConfigurationError):
                await saver.list(at("t"), limit=limit)

    @promise
    async def test_before_may_come_without_configurable(self, saver: Coloured) -> None:
        await put_line(saver, "t", 2)
        assert await numbers(saver, at("t"), before={"tags": []}) == [2, 1]
        assert await numbers(saver, at("t"), before={"configurable": {}}) == [2, 1]
        bare = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": numbered(2)}
        assert await numbers(saver, at("t"), before=bare) == [1]

    @promise
    async def test_a_lone_string_is_not_a_list_of_channels(self, saver: Coloured) -> None:
        await put(saver, "t", 1, {"a": 1})
        wrong: list[Any] = ["a", None, 5, b"a", [1], ["a", None]]
        for channels in wrong:
            with pytest.raises(ConfigurationError):
                await saver.get_delta_channel_history(config=at("t"), channels=channels)

    def test_what_is_no_version_has_no_next_one(self, saver: Coloured) -> None:
        wrong: list[Any] = ["", "x", "x.1", b"x", [], {}, object(), float("nan"), float("inf")]
        for current in wrong:
            with pytest.raises(ConfigurationError):
                saver.saver.get_next_version(current, None)

    def test_what_cannot_be_allowed_is_refused(self, saver: Coloured) -> None:
        wrong: list[Any] = ["my.module", None, 5, [5], [("my.module", 5)], [()], [["my", "Class"]]]
        for allowed in wrong:
            with pytest.raises(ConfigurationError):
                saver.saver.with_allowlist(allowed)
