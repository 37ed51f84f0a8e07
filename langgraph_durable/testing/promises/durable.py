"""Promises that only this package makes: heads, rollback, exact values, secrets."""

from __future__ import annotations

import copy
import logging
import random
import uuid
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from langgraph_durable.errors import ConfigurationError, SerializationError
from langgraph_durable.testing.model import Coloured, at, checkpoint, numbered
from langgraph_durable.testing.promises.savers import Recorder
from langgraph_durable.testing.promises.stage import (
    Another,
    Stage,
    everything,
    load,
    number,
    numbers,
    parent_of,
    promise,
    put,
    put_line,
    values,
    version,
    write,
)


async def latest(saver: Coloured, thread: str = "t", *, ns: str = "") -> int:
    return number(await load(saver, thread, ns=ns))


class Heads(Stage):
    """Latest does not depend on clocks: the child of the latest is the latest."""

    @promise
    async def test_a_child_of_the_head_is_the_head_whatever_its_id(
        self, saver: Coloured, another: Another
    ) -> None:
        await put(saver, "t", 100, {"items": [1]})
        await put(saver, "t", 60, {"items": [1, 2]}, parent=100)
        await put(another(), "t", 40, {"items": [1, 2, 3]}, parent=60)
        assert await latest(saver) == await latest(another()) == 40
        assert await values(saver, "t") == {"items": [1, 2, 3]}
        await put(saver, "t", 41, parent=40)
        assert await latest(saver) == 41

    @promise
    async def test_list_and_before_go_by_id_all_the_same(self, saver: Coloured) -> None:
        await put(saver, "t", 100)
        await put(saver, "t", 60, parent=100)
        assert await numbers(saver, at("t")) == [100, 60]
        assert await numbers(saver, at("t"), before=at("t", numbered(100))) == [60]

    @promise
    async def test_a_lower_id_that_continues_something_else_is_not_the_head(
        self, saver: Coloured
    ) -> None:
        await put_line(saver, "t", 5)
        await put(saver, "u", 50)
        await put(saver, "u", 60, parent=50)
        await put(saver, "u", 10)
        await put(saver, "u", 55, parent=50)
        assert await latest(saver, "u") == 60

    @promise
    async def test_a_greater_id_is_the_head(self, saver: Coloured) -> None:
        await put_line(saver, "t", 3)
        await put(saver, "t", 8, parent=1)
        assert await latest(saver) == 8
        await put(saver, "t", 9)
        assert await latest(saver) == 9

    @promise
    async def test_putting_an_id_again_moves_nothing(self, saver: Coloured) -> None:
        await put(saver, "t", 100)
        await put(saver, "t", 60, parent=100)
        await put(saver, "t", 100, {"a": 1})
        assert await latest(saver) == 60
        await put(saver, "t", 60, {"a": 1}, parent=100)
        assert await latest(saver) == 60
        await put_line(saver, "u", 3)
        await put(saver, "u", 1, {"a": 1})
        await put(saver, "u", 2, {"a": 1}, parent=3)
        assert await latest(saver, "u") == 3

    @promise
    async def test_each_namespace_has_its_own_head(self, saver: Coloured) -> None:
        await put(saver, "t", 100)
        await put(saver, "t", 60, parent=100)
        await put(saver, "t", 50, ns="child")
        await put(saver, "t", 70, ns="child", parent=100)
        await put(saver, "t", 65, ns="child", parent=70)
        assert await latest(saver) == 60
        assert await latest(saver, ns="child") == 65

    @promise
    async def test_copy_and_prune_go_by_the_head(self, saver: Coloured) -> None:
        await put(saver, "t", 100, {"a": 100})
        await put(saver, "t", 60, {"a": 60}, parent=100)
        await saver.copy_thread("t", "copy")
        assert await latest(saver, "copy") == 60
        await saver.prune(["t"], strategy="keep_latest")
        assert await numbers(saver, at("t")) == [60]
        assert await values(saver, "t") == {"a": 60}
        await put(saver, "t", 50, {"a": 50}, parent=60)
        assert await latest(saver) == 50

    @promise
    async def test_a_rolled_back_run_leaves_the_head_it_found(self, saver: Coloured) -> None:
        drop = {"run_id": "drop"}
        await put(saver, "behind", 100)
        await put(saver, "behind", 60, parent=100)
        await put(saver, "behind", 40, parent=60, metadata=drop)
        await put_line(saver, "forked", 4)
        await put(saver, "forked", 9, parent=2, metadata=drop)
        await put(saver, "forked", 10, parent=9, metadata=drop)
        await saver.delete_for_runs(["drop"])
        assert await latest(saver, "behind") == 60
        assert await latest(saver, "forked") == 4

    @promise
    async def test_direct_use_never_conflicts(self, saver: Coloured, another: Another) -> None:
        """Only a run can be overtaken; whoever calls `put` by hand means what they say."""
        await put_line(saver, "t", 2)
        loaded = await saver.get_tuple(at("t"))
        await put(another(), "t", 3, parent=2)
        await saver.put(loaded.config, checkpoint(numbered(4)), {}, {})
        assert parent_of(await load(saver, "t", 4)) == numbered(2)
        assert await numbers(saver, at("t")) == [4, 3, 2, 1]


class Cycles(Stage):
    """A cycle of parents hangs nothing."""

    @promise
    async def test_everything_ends(self, saver: Coloured) -> None:
        counters = {"counters_since_delta_snapshot": {"log": [1, 1]}}
        rings = {"self": [(1, 1)], "pair": [(1, 2), (2, 1)], "lasso": [(1, 2), (2, 1), (3, 2)]}
        for thread, ring in rings.items():
            for n, parent in ring:
                metadata = {**counters, "run_id": f"run-{n}"}
                await put(saver, thread, n, parent=parent, inherits={"log": n}, metadata=metadata)
                await write(saver, thread, n, [("log", n)])
            last = len(ring)
            config = at(thread, numbered(last))
            assert parent_of(await load(saver, thread, last)) == numbered(ring[-1][1])
            assert await numbers(saver, at(thread)) == list(range(last, 0, -1))
            found = await saver.get_delta_channel_history(config=config, channels=["log"])
            assert len(found["log"]["writes"]) <= last
            await saver.copy_thread(thread, f"copy of {thread}")
            assert await numbers(saver, at(f"copy of {thread}")) == list(range(last, 0, -1))
            await saver.prune([thread], strategy="keep_latest")
            assert len(await everything(saver, thread)) == 1
        await saver.delete_for_runs(["run-1"])
        assert await numbers(saver, at("copy of pair")) == [2]
        assert await numbers(saver, at("copy of lasso")) == [3, 2]


class Rollback(Stage):
    """`delete_for_runs` takes back all that a run did; LangGraph Server relies on it."""

    @promise
    async def test_a_runs_writes_on_others_checkpoints_are_taken_back(
        self, saver: Coloured
    ) -> None:
        await put(saver, "t", 1, metadata={"run_id": "asks"})
        await write(saver, "t", 1, [(INTERRUPT, "really?")], "task", "~1", run="asks")
        await write(saver, "t", 1, [("a", 1)], "other", "~2", run="asks")
        await write(saver, "t", 1, [(RESUME, "yes"), ("a", 2)], "task", "~1", run="answers")
        await write(saver, "t", 1, [("a", 3)], "null", run="answers")
        await write(saver, "t", 1, [("a", 4)], "nobody's")
        for _ in range(2):
            await saver.delete_for_runs(["answers"])
            assert (await load(saver, "t")).pending_writes == [
                ("nobody's", "a", 4),
                ("task", INTERRUPT, "really?"),
                ("other", "a", 1),
            ]
        await write(saver, "t", 1, [(RESUME, "no")], "task", "~1", run="answers")
        assert ("task", RESUME, "no") in ((await load(saver, "t")).pending_writes or [])
        await saver.delete_for_runs(["answers"])
        assert ("task", RESUME, "no") not in ((await load(saver, "t")).pending_writes or [])

    @promise
    async def test_early_writes_of_a_run_are_taken_back_too(self, saver: Coloured) -> None:
        await write(saver, "t", 1, [("a", 1)], run="drop")
        await saver.delete_for_runs(["drop"])
        await put(saver, "t", 1)
        assert (await load(saver, "t")).pending_writes == []

    @promise
    async def test_a_copy_remembers_its_runs(self, saver: Coloured) -> None:
        await put(saver, "t", 1, metadata={"run_id": "keep"})
        await write(saver, "t", 1, [("a", 1)], run="drop")
        await put(saver, "t", 2, parent=1, metadata={"run_id": "drop"})
        await saver.copy_thread("t", "copy")
        await saver.delete_for_runs(["drop"])
        for thread in ("t", "copy"):
            assert await numbers(saver, at(thread)) == [1]
            assert (await load(saver, thread)).pending_writes == []

    @promise
    async def test_a_run_id_from_the_runs_metadata_counts(self, saver: Coloured) -> None:
        await put(saver, "t", 1)
        config = at("t", numbered(1))
        config["metadata"] = {"run_id": "drop"}
        await saver.put(config, checkpoint(numbered(2)), {"source": "loop"}, {})
        await saver.delete_for_runs(["drop"])
        assert await numbers(saver, at("t")) == [1]


class Moody(Recorder):
    """A serialiser that fails on whatever holds this key or text."""

    def __init__(self, *, dumping: str | None = None, loading: str | None = None) -> None:
        super().__init__()
        self.dumping, self.loading = dumping, loading

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if self.dumping is not None and self.dumping in repr(obj):
            raise ValueError("no mood to dump")
        return super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        found = super().loads_typed(data)
        if self.loading is not None and self.loading in repr(found):
            raise IndexError("no mood to load")
        return found


LONG = "long enough not to be stored inside of the record " * 12
HOLDERS: dict[str, Any] = {
    "text": "spleen" + LONG,
    "list": [LONG, {"a": "spleen"}, 1],
    "numbers": ["spleen", 1, 2, 3, 4, 5],
    "key": {"spleen": LONG, "b": LONG},
    "value": {"a": "spleen" + LONG, "b": LONG},
    "key of lists": {"spleen": [{"a": 1}, {"b": 2}], "b": LONG},
    "tiny": "spleen",
}


class Values(Stage):
    """Values the interface leaves open."""

    @pytest.mark.parametrize("value", HOLDERS.values(), ids=HOLDERS)
    @promise
    async def test_an_error_of_a_users_serialiser_names_the_channel(
        self, saver: Coloured, value: Any
    ) -> None:
        own = Coloured(copy.copy(saver.saver), saver.colour)
        own.saver.serde = Moody(dumping="spleen")
        with pytest.raises(SerializationError, match=r"'bad'.*no mood to dump") as refused:
            await put(own, "t", 1, {"good": [LONG], "bad": value})
        assert isinstance(refused.value.__cause__, ValueError)
        assert await saver.list(None) == []
        own.saver.serde = Recorder()
        await put(own, "t", 1, {"good": [LONG], "bad": value})
        await put(own, "u", 1)
        await write(own, "u", 1, [("good", LONG), ("bad", value)])
        own.saver.serde = Moody(loading="spleen")
        for thread in ("t", "u"):
            place = f"thread '{thread}', checkpoint {numbered(1)}.*'bad'.*no mood to load"
            with pytest.raises(SerializationError, match=place) as refused:
                await own.get_tuple(at(thread))
            assert isinstance(refused.value.__cause__, IndexError)

    @promise
    async def test_values_not_named_in_new_versions_are_kept(self, saver: Coloured) -> None:
        given = {"a": [1], "b": "text", "c": None}
        await saver.put(at("t"), checkpoint(numbered(1), given, {"a": version(1)}), {}, {})
        assert await values(saver, "t") == given

    @promise
    async def test_a_value_belongs_to_its_version_whoever_the_parent_is(
        self, saver: Coloured
    ) -> None:
        await put(saver, "t", 1, {"a": ["one"]})
        await put(saver, "t", 2, {"a": ["two"]}, parent=1)
        await put(saver, "t", 3, parent=1, inherits={"a": 2})
        await put(saver, "t", 4, parent=2, inherits={"a": 1})
        await put(saver, "t", 5, parent=99, inherits={"a": 2})
        await put(saver, "t", 6, inherits={"a": 1})
        found = [(await values(saver, "t", n)).get("a") for n in range(3, 7)]
        assert found == [["two"], ["one"], ["two"], ["one"]]

    @promise
    async def test_an_id_handed_out_is_stored_as_plain_text(self, saver: Coloured) -> None:
        """Whatever a saver hides in the ids it hands out must not end up in the user's data."""
        await put(saver, "t", 1)
        for config in (at("t"), at("t", numbered(1))):
            loaded = await saver.get_tuple(config)
            id = loaded.config["configurable"]["checkpoint_id"]
            await put(saver, "u", 1, {"a": id, "b": [id], "c": {id: id}}, metadata={"id": id})
            await write(saver, "u", 1, [("a", id)], id)
            found = await load(saver, "u")
            stored = found.checkpoint["channel_values"]
            [(task, _, written)] = found.pending_writes or []
            texts = [stored["a"], *stored["b"], *stored["c"], *stored["c"].values()]
            texts += [found.metadata["id"], task, written]  # type: ignore[typeddict-item]
            assert {type(text) for text in texts} == {str}
            await saver.delete_thread("u")

    @promise
    async def test_no_namespace_means_the_root(self, saver: Coloured) -> None:
        stored = await saver.put(at("t", ns=None), checkpoint(numbered(1)), {}, {})
        assert stored == at("t", numbered(1))
        await saver.put_writes(at("t", numbered(1), ns=None), [("a", 1)], "task")
        found = await saver.get_tuple(at("t", ns=None))
        assert found == await load(saver, "t")
        assert found.pending_writes == [("task", "a", 1)]

    @promise
    async def test_a_parent_may_sort_above_its_child_or_not_be_there(self, saver: Coloured) -> None:
        await put(saver, "t", 5, parent=9)
        assert (await load(saver, "t")).parent_config == at("t", numbered(9))
        found = await saver.get_delta_channel_history(config=at("t"), channels=["a"])
        assert found == {"a": {"writes": []}}

    @promise
    async def test_what_cannot_be_stored_is_refused_whole(self, saver: Coloured) -> None:
        await put(saver, "t", 1, {"a": 1})
        before = await everything(saver, "t")
        with pytest.raises(SerializationError, match="unstorable"):
            await put(saver, "t", 2, {"a": 2, "unstorable": [1, object()]}, parent=1)
        with pytest.raises(SerializationError, match="unstorable"):
            await write(saver, "t", 1, [("a", 1), ("unstorable", {"k": object()})])
        assert await everything(saver, "t") == before

    @promise
    async def test_a_refused_first_put_leaves_no_thread(self, saver: Coloured) -> None:
        with pytest.raises(SerializationError):
            await put(saver, "t", 1, {"a": object()})
        assert await saver.list(None) == []


class Versions(Stage):
    """`get_next_version`"""

    def test_successors_of_one_version_are_all_different(self, saver: Coloured) -> None:
        for current in (None, saver.saver.get_next_version(None, None), 3):
            made = {saver.saver.get_next_version(current, None) for _ in range(500)}
            assert len(made) == 500

    def test_ints_and_floats_of_other_savers_are_accepted(self, saver: Coloured) -> None:
        made = [saver.saver.get_next_version(v, None) for v in (None, 1, 2.0, 3, 10, 11.5)]
        assert made == sorted(made)
        assert all(isinstance(version, str) for version in made)

    @promise
    async def test_the_users_randomness_is_left_alone(
        self, saver: Coloured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Users seed `random` and patch `uuid4` in their tests."""

        def no_uuid() -> uuid.UUID:
            raise AssertionError("uuid.uuid4 was called")

        monkeypatch.setattr(uuid, "uuid4", no_uuid)
        random.seed(1)
        state, first = random.getstate(), saver.saver.get_next_version(None, None)
        await put_line(saver, "t", 2)
        await write(saver, "t", 2, [("a", 1)])
        await saver.copy_thread("t", "copy")
        await saver.prune(["t"], strategy="keep_latest")
        await saver.delete_for_runs(["r"])
        await saver.list(None)
        assert random.getstate() == state
        assert saver.saver.get_next_version(None, None) != first


class Prunes(Stage):
    """`prune`, where the interface is silent."""

    @promise
    async def test_keep_latest_leaves_no_dangling_parent(self, saver: Coloured) -> None:
        await put_line(saver, "t", 3)
        await put_line(saver, "t", 2, ns="child")
        await saver.prune(["t"], strategy="keep_latest")
        assert (await load(saver, "t")).parent_config is None
        assert (await load(saver, "t", ns="child")).parent_config is None

    @promise
    async def test_delete_all_is_delete(self, saver: Coloured) -> None:
        await put_line(saver, "a", 2)
        await put_line(saver, "b", 2)
        await saver.prune(["a"], strategy="delete_all")
        assert await everything(saver, "a") == []
        assert await numbers(saver, at("b")) == [2, 1]

    @promise
    async def test_one_string_is_not_a_list_of_threads(self, saver: Coloured) -> None:
        await put_line(saver, "t", 2)
        for strategy in ("keep_latest", "delete", "delete_all"):
            with pytest.raises((TypeError, ValueError)):
                await saver.prune("t", strategy=strategy)
        assert await numbers(saver, at("t")) == [2, 1]

    @promise
    async def test_an_unknown_strategy_is_refused(self, saver: Coloured) -> None:
        await put_line(saver, "t", 2)
        for strategy in ("keep-latest", "", None):
            with pytest.raises(ValueError):
                await saver.prune(["t"], strategy=strategy)
        assert await numbers(saver, at("t")) == [2, 1]

    @promise
    async def test_copy_does_not_overwrite(self, saver: Coloured) -> None:
        await put_line(saver, "a", 2)
        await put_line(saver, "b", 1)
        with pytest.raises(ConfigurationError):
            await saver.copy_thread("a", "b")
        assert await numbers(saver, at("b")) == [1]


SECRET = ["api_key", "access_token", "client_secret", "password", "authorization", "cookie"]
SECRET += ["private_key", "openai_api_key", "OPENAI_API_KEY", "githubToken", "x-api-key"]
NO_SECRET = ["author", "token_count", "monkey", "max_tokens", "primary_key", "keyboard", "passage"]


class Secrets(Stage):
    """Credentials in a run's config do not end up in the store."""

    @pytest.mark.parametrize("key", SECRET)
    @promise
    async def test_credentials_are_left_out_with_one_warning(
        self, saver: Coloured, key: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = at("t", **{key: "s3cret"})
        config["metadata"] = {key: "s3cret", "user": "u"}
        with caplog.at_level(logging.WARNING, "langgraph_durable"):
            for n in (1, 2, 3):
                await saver.put(config, checkpoint(numbered(n)), {}, {})
        assert (await load(saver, "t")).metadata == {"user": "u"}
        warnings = [record.getMessage() for record in caplog.records if key in record.getMessage()]
        assert len(warnings) == 1
        assert "s3cret" not in caplog.text

    @pytest.mark.parametrize("key", NO_SECRET)
    @promise
    async def test_other_keys_stay(self, saver: Coloured, key: str) -> None:
        await saver.put(at("t", **{key: "kept"}), checkpoint(numbered(1)), {}, {})
        assert (await load(saver, "t")).metadata == {key: "kept"}

    @promise
    async def test_the_puts_own_metadata_is_never_touched(self, saver: Coloured) -> None:
        own = {"api_key": "mine", "__own": 1, "thread_id": "x", "text": "a\x00b", "none": None}
        await put(saver, "t", 1, metadata=own)
        assert (await load(saver, "t")).metadata == own
