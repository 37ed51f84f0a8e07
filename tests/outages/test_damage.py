"""What somebody has changed in a thread's hash is noticed, and stays that thread's trouble."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
import redis
import servers
from work import is_whole, line, put, state, steps, write, write_much

from langgraph_durable import CorruptionError, KeepLast, RedisSaver, SqliteSaver, copy_store
from langgraph_durable._core import seal
from langgraph_durable._core.refs import Ref, pack_refs
from langgraph_durable._redis import keys, reading, rows
from langgraph_durable.testing.model import at, checkpoint, numbered

RECORDS = (b"c", b"t", b"w", b"i")
"""Fields of checkpoints, of the writes of a task, of the tasks of a checkpoint, and of items."""
Damage = Callable[[random.Random, bytes], bytes]


def flipped(dice: random.Random, blob: bytes) -> bytes:
    bit = dice.randrange(8 * len(blob))
    changed = bytearray(blob)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def cut(dice: random.Random, blob: bytes) -> bytes:
    return blob[: dice.randrange(1, len(blob))]


def lengthened(dice: random.Random, blob: bytes) -> bytes:
    return blob + dice.randbytes(dice.randrange(1, 20))


def replaced(dice: random.Random, blob: bytes) -> bytes:
    return dice.randbytes(len(blob))


@pytest.fixture(params=["with scripts", "without"])
def saver(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[RedisSaver]:
    """Without a memory, so that everything is read from the server."""
    prefix = servers.prefix_for(tmp_path)
    with RedisSaver(servers.shared().url, prefix=prefix, cache_bytes=0) as made:
        made._settings.scripts = request.param == "with scripts"
        yield made


@pytest.fixture
def admin() -> Iterator[redis.Redis]:
    with servers.shared().client() as client:
        yield client


def hash_of(saver: RedisSaver, thread: str) -> bytes:
    return saver._storage.context.keys.thread(thread).hash


def records(admin: redis.Redis, hash: bytes) -> dict[bytes, bytes]:
    return {name: blob for name, blob in admin.hgetall(hash).items() if name[:1] in RECORDS}


def seen(saver: RedisSaver, thread: str) -> list[Any]:
    """All that a reader can get of a thread."""
    found = [saver.get_tuple(at(thread)), *saver.list(at(thread))]
    return [(each.checkpoint, each.metadata, each.pending_writes) for each in found if each]


@pytest.mark.parametrize("damage", [flipped, cut, lengthened, replaced])
def test_a_changed_field_is_an_error_or_makes_no_difference(
    damage: Damage, saver: RedisSaver, admin: redis.Redis, long: bool
) -> None:
    line(saver, "t", 3)
    write_much(saver, "t", 2)
    hash, truth, dice = hash_of(saver, "t"), seen(saver, "t"), random.Random(7)
    noticed = 0
    for name, blob in records(admin, hash).items():
        for _ in range(200 if long else 6):
            admin.hset(hash, name, damage(dice, blob))
            try:
                found = seen(saver, "t")
            except CorruptionError:
                noticed += 1
            else:
                assert found == truth, name
        admin.hset(hash, name, blob)
    assert noticed > 50
    assert seen(saver, "t") == truth


def flips(blob: bytes, dice: random.Random | None) -> Iterator[bytes]:
    """The blob with each of its bits flipped, or with one bit of each byte."""
    for place in range(len(blob)):
        for bit in range(8) if dice is None else (dice.randrange(8),):
            changed = bytearray(blob)
            changed[place] ^= 1 << bit
            yield bytes(changed)


def test_every_flipped_bit_is_noticed(saver: RedisSaver, admin: redis.Redis, long: bool) -> None:
    """Of records of writes all of them are tried, with what tells tasks apart and finds them."""
    line(saver, "t", 1)
    write_much(saver, "t", 1)
    hash, dice = hash_of(saver, "t"), random.Random(7)
    for name, blob in records(admin, hash).items():
        for changed in flips(blob, None if long or name[:1] == b"w" else dice):
            admin.hset(hash, name, changed)
            with pytest.raises(CorruptionError, match="'t'"):
                found = saver.get_tuple(at("t"))
                raise AssertionError(f"{name!r}: {blob!r} -> {changed!r}: {found}")
        admin.hset(hash, name, blob)
    assert is_whole(saver, "t", 1)


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_a_flipped_bit_in_what_a_thread_says_of_itself_is_an_error_or_makes_no_difference(
    saver: RedisSaver, admin: redis.Redis, cold: bool
) -> None:
    """Its epoch, versions and counts, and which checkpoint is the latest."""
    line(saver, "t", 2)  # whose ids differ by more than a bit
    hash, truth, noticed = hash_of(saver, "t"), seen(saver, "t"), set[bytes]()
    for name in (b"e", b"v", b"k", b"n", b"q", b"h"):
        blob = admin.hget(hash, name) or b""
        for changed in flips(blob, None if len(blob) < 20 else random.Random(7)):
            admin.hset(hash, name, changed)
            if cold:
                saver._storage.context.marks.forget("t")
            try:
                saver.stats(["t"])
                found = seen(saver, "t")
            except CorruptionError as error:
                assert "'t'" in str(error)  # noqa: PT017
                noticed.add(name)
            else:
                assert found == truth, (name, changed)
            admin.hset(hash, name, blob)
    assert noticed >= {b"v", b"q", b"h"}
    assert seen(saver, "t") == truth


def place_of(n: int) -> bytes:
    return keys.place("", numbered(n))


def trash(admin: redis.Redis, hash: bytes, kind: bytes) -> None:
    admin.hset(hash, kind + place_of(2), b"\xff" * 40)


def cut_tasks(admin: redis.Redis, hash: bytes) -> None:
    """Leave the last one out, so that what is left could be a page of its own."""
    page = admin.hget(hash, b"w0:" + place_of(2)) or b""
    last = rows.pack_page(rows.unpack_page(page)[-1:])
    admin.hset(hash, b"w0:" + place_of(2), page[: 2 - len(last)])


def lose_writes(admin: redis.Redis, hash: bytes) -> None:
    [name] = [name for name in admin.hkeys(hash) if name[:1] == b"t"]
    admin.hdel(hash, name)


SPOILS: dict[str, Callable[[redis.Redis, bytes], Any]] = {
    "a checkpoint": lambda admin, hash: trash(admin, hash, b"c"),
    "a checkpoint cut off": lambda admin, hash: admin.hset(hash, b"c" + place_of(2), b"\0\0\0"),
    "its tasks": lambda admin, hash: trash(admin, hash, b"w0:"),
    "the last of them": cut_tasks,
    "the writes of one": lose_writes,
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_a_damaged_record_hides_no_other(
    spoil: Callable[[redis.Redis, bytes], Any],
    saver: RedisSaver,
    admin: redis.Redis,
    tmp_path: Path,
) -> None:
    for thread in ("t", "u"):
        line(saver, thread, 4)
    write_much(saver, "t", 2)
    spoil(admin, hash_of(saver, "t"))
    for n in (1, 3, 4):
        found = saver.get_tuple(at("t", numbered(n)))
        assert found is not None
        assert found.checkpoint["channel_values"] == state(n)
    with SqliteSaver(tmp_path / "copy.db") as target:
        for act in (
            lambda: saver.get_tuple(at("t", numbered(2))),
            lambda: list(saver.list(at("t"))),
            lambda: saver.copy_thread("t", "copy"),
            lambda: copy_store(saver, target),
        ):
            with pytest.raises(CorruptionError, match=f"'t', checkpoint {numbered(2)}"):
                act()
        copy_store(saver, target, threads=["u"])
        assert steps(target, "u") == [4, 3, 2, 1]
    assert sorted(steps(saver, None)) == [1, 1, 2, 3, 3, 4, 4]
    assert [step.header.damage is None for step in saver.timeline("t")] == [True, False, True, True]
    assert saver.stats(["t"]).checkpoints == 4
    saver.prune(["t"], strategy=KeepLast(1))
    assert numbered(2) not in {found.checkpoint["id"] for found in saver.list(at("t"))}


@pytest.mark.parametrize("kind", [b"c", b"w", b"spine"])
def test_a_damaged_count_stops_nobody(kind: bytes, saver: RedisSaver, admin: redis.Redis) -> None:
    """Numbers of items are read before seals are: a few bits make billions of them."""
    line(saver, "t", 2)
    hash = hash_of(saver, "t")
    many, place = pack_refs([Ref("messages", (0, 1 << 40))]), place_of(2)
    if kind == b"c":
        row = rows.unpack_checkpoint("", numbered(2), admin.hget(hash, b"c" + place) or b"")
        admin.hset(hash, b"c" + place, rows.pack_checkpoint(row._replace(refs=many)))
    elif kind == b"w":
        page = admin.hget(hash, b"w0:" + place) or b""
        [write] = rows.unpack_tasks(
            "t", "", numbered(2), [each.rows for each in rows.unpack_page(page)]
        )
        packed = rows.pack_task([(0, 1, rows.pack_write(write._replace(refs=many)))])
        admin.hset(hash, b"w0:" + place, rows.pack_page([rows.Listed(packed)]))
    else:
        row = rows.unpack_checkpoint("", numbered(2), admin.hget(hash, b"c" + place) or b"")
        on_spine = row._replace(refs=pack_refs([Ref("messages", (), spine=(0, 1))]))
        admin.hset(hash, b"c" + place, rows.pack_checkpoint(on_spine))
        runs = ormsgpack.packb([0, 1 << 40])
        admin.hset(hash, b"i0", b"checksum" + seal.pack(seal.SPINE_MARK + runs))
    for look in (lambda: saver.get_tuple(at("t")), lambda: list(saver.list(at("t")))):
        with pytest.raises(CorruptionError, match="'t'"):
            look()
    with pytest.raises(CorruptionError, match="'t'"):
        saver.prune(["t"], strategy=KeepLast(1))


def test_writes_that_cannot_be_read_are_not_added_to(saver: RedisSaver, admin: redis.Redis) -> None:
    line(saver, "t", 2)
    write_much(saver, "t", 2)
    hash = hash_of(saver, "t")
    truth = records(admin, hash)
    for kind, add in ((b"w", write), (b"t", write_much)):
        for name in truth:
            if name[:1] == kind:
                admin.hset(hash, name, b"\0" * 5)
        before = admin.hgetall(hash)
        with pytest.raises(CorruptionError, match="'t'"):
            add(saver, "t", 2)
        assert admin.hgetall(hash) == before
        admin.hset(hash, mapping=truth)


def test_fields_that_change_places_are_noticed(saver: RedisSaver, admin: redis.Redis) -> None:
    """Within a thread and between two: a seal is good for one place."""
    for thread in ("t", "u"):
        line(saver, thread, 3)
        write_much(saver, thread, 1)
        write_much(saver, thread, 3)
    for thread, other in (("t", "t"), ("t", "u")):
        mine, theirs = hash_of(saver, thread), hash_of(saver, other)
        kept = records(admin, mine)
        for kind in (b"c", b"i", b"t", b"w"):
            names = sorted(name for name in kept if name[:1] == kind)
            foreign = sorted(name for name in admin.hkeys(theirs) if name[:1] == kind)
            name, source = names[-1], foreign[-1] if other != thread else foreign[0]
            blob = admin.hget(theirs, source)
            if blob == kept[name]:
                continue
            admin.hset(mine, name, blob or b"")
            with pytest.raises(CorruptionError, match=f"'{thread}'"):
                seen(saver, thread)
            admin.hset(mine, name, kept[name])
    assert is_whole(saver, "t", 3)


def test_a_damaged_thread_is_left_out_and_can_be_begun_again(
    saver: RedisSaver, admin: redis.Redis
) -> None:
    line(saver, "good", 3)
    line(saver, "bad", 3)
    hash = hash_of(saver, "bad")
    for name in records(admin, hash):
        admin.hset(hash, name, b"\xff" * 40)
    with pytest.raises(CorruptionError, match="'bad'"):
        saver.get_tuple(at("bad"))
    assert steps(saver, None) == [3, 2, 1]
    put(saver, "good", 4)
    assert is_whole(saver, "good", 4)
    saver.delete_thread("bad")
    line(saver, "bad", 2)
    assert is_whole(saver, "bad", 2)


# ---- what only looks like damage -----------------------------------------------------------------


@pytest.mark.parametrize("stored", [0, 2])
def test_a_thread_that_others_write_to_while_it_is_looked_at_is_whole(
    saver: RedisSaver, monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    """Commands that travel together are no transaction: the server may serve others in between."""
    line(saver, "t", stored)
    ask, last = reading.ask, stored

    async def ask_slowly(thread_id: str | None, commands: Any) -> list[Any]:
        nonlocal last
        if [command[0] for command in commands] != ["HMGET", "ZCARD"] or last == stored + 3:
            return await ask(thread_id, commands)
        first = await ask(thread_id, commands[:1])
        last += 1
        put(saver, "t", last)
        return first + await ask(thread_id, commands[1:])

    monkeypatch.setattr(reading, "ask", ask_slowly)
    assert steps(saver, "t") == list(range(stored + 3, 0, -1))


OTHER = {"messages": ["of another conversation, and long enough to be an item of its own"]}


def prune(saver: RedisSaver) -> None:
    saver.prune(["t"])


def begin_again(saver: RedisSaver) -> None:
    """The items of the new thread have the numbers of the old one's."""
    saver.delete_thread("t")
    saver.put(at("t"), checkpoint(numbered(1), OTHER, {"messages": 1}), {}, {"messages": 1})


@pytest.mark.parametrize(("remove", "left"), [(prune, None), (begin_again, OTHER)])
def test_a_checkpoint_whose_items_go_while_it_is_read_is_read_again(
    saver: RedisSaver,
    monkeypatch: pytest.MonkeyPatch,
    remove: Callable[[RedisSaver], None],
    left: Any,
) -> None:
    """Without scripts a checkpoint and its items are read one after the other."""
    saver._settings.scripts = False
    put(saver, "t", 1)
    saver.put(at("t", numbered(1)), checkpoint(numbered(2), {}, {}), {}, {})
    fetch, removals = reading.fetch, [remove]

    async def fetch_late(*args: Any) -> Any:
        while removals:
            removals.pop()(saver)
        return await fetch(*args)

    monkeypatch.setattr(reading, "fetch", fetch_late)
    found = saver.get_tuple(at("t", numbered(1)))
    assert left == (found and found.checkpoint["channel_values"])
