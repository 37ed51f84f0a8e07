"""Promises about the saver object itself: versions, clones, specs."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_durable.testing.model import Coloured, at, numbered
from langgraph_durable.testing.promises.stage import Stage, numbers, promise, put, values, write


class Recorder(SerializerProtocol):
    """A serialiser that counts its calls."""

    def __init__(self) -> None:
        self.inner = JsonPlusSerializer()
        self.dumped = self.loaded = 0

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        self.dumped += 1
        return self.inner.dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        self.loaded += 1
        return self.inner.loads_typed(data)


class Savers(Stage):
    """What LangGraph asks a saver besides storing."""

    def test_versions_grow(self, saver: Coloured) -> None:
        version = None
        made = [version := saver.saver.get_next_version(version, None) for _ in range(200)]
        assert all(old < new for old, new in pairwise(made))

    @promise
    async def test_its_own_versions_come_back_exactly(self, saver: Coloured) -> None:
        first = saver.saver.get_next_version(None, None)
        versions = {"a": first, "b": saver.saver.get_next_version(first, None)}
        stored = {"v": 4, "id": numbered(1), "ts": "", "channel_values": {"a": 1, "b": 2}}
        seen = {"node": dict(versions)}
        given = {**stored, "channel_versions": versions, "versions_seen": seen}
        await saver.put(at("t"), given, {}, versions)
        found = await saver.get(at("t"))
        assert found["channel_versions"] == versions
        assert found["versions_seen"] == seen
        assert found["channel_values"] == {"a": 1, "b": 2}

    @promise
    async def test_versions_of_other_savers_are_kept(self, saver: Coloured) -> None:
        versions = {"a": 3, "b": 2.5, "c": "00001"}
        given = {"v": 4, "id": numbered(1), "ts": "", "channel_values": dict.fromkeys("abc", "x")}
        await saver.put(at("t"), {**given, "channel_versions": versions}, {}, versions)
        found = await saver.get(at("t"))
        assert found["channel_versions"] == versions
        assert [type(v) for v in found["channel_versions"].values()] == [int, float, str]
        assert found["channel_values"] == dict.fromkeys("abc", "x")

    @promise
    async def test_with_allowlist_gives_a_clone_on_the_same_store(self, saver: Coloured) -> None:
        await put(saver, "t", 1, {"a": [1]})
        clone = Coloured(saver.saver.with_allowlist([("some.module", "SomeClass")]), saver.colour)
        assert type(clone.saver) is type(saver.saver)
        assert await values(clone, "t") == {"a": [1]}
        await put(clone, "t", 2, {"a": [1, 2]}, parent=1)
        await put(saver, "t", 3, {"a": [1, 2, 3]}, parent=2)
        assert await values(clone, "t") == {"a": [1, 2, 3]}
        assert await numbers(saver, at("t")) == [3, 2, 1]
        await clone.delete_thread("t")
        assert await saver.get_tuple(at("t")) is None

    @promise
    async def test_the_serialiser_is_looked_up_at_each_call(self, saver: Coloured) -> None:
        """LangGraph puts another one on a shallow copy of the saver."""
        clone = Coloured(copy.copy(saver.saver), saver.colour)
        clone.saver.serde = recorder = Recorder()
        await put(clone, "t", 1, {"a": ["long enough not to be stored inside the record" * 9]})
        await write(clone, "t", 1, [("a", "long enough not to be stored inside the record" * 9)])
        assert recorder.dumped >= 2
        await values(clone, "t")
        assert recorder.loaded >= 2

    def test_config_specs_are_a_list_of_specs(self, saver: Coloured) -> None:
        assert isinstance(saver.saver.config_specs, list)
        assert all(hasattr(spec, "id") for spec in saver.saver.config_specs)
