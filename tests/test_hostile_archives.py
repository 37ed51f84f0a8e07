"""Archives made to do harm, with digests that fit: refused before anything is written.

The archives of honest exports are taken apart, changed and put together again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import backends
import histories
import ormsgpack
import pytest
import zstandard
from histories import contents, thread
from langgraph.checkpoint.base import empty_checkpoint

from langgraph_durable import (
    ConfigurationError,
    DamagedArchive,
    DurableError,
    KeepLast,
    SqliteSaver,
    UnsafeTypeError,
    export_threads,
    import_threads,
)
from langgraph_durable._core.seal import SPINE_MARK
from langgraph_durable.moving import format

Blocks = list[tuple[bytes, Any]]
THREADS = ("t", "deltas", "big")
BLOCK_HEAD = 21


def taken_apart(whole: bytes) -> Blocks:
    """Kind and value of each block, as the description of the format says."""
    blocks, at = [], len(format.MAGIC)
    while at < len(whole):
        begin, end = (
            at + BLOCK_HEAD,
            at + BLOCK_HEAD + int.from_bytes(whole[at + 1 : at + 5], "big"),
        )
        value = ormsgpack.unpackb(zstandard.ZstdDecompressor().decompress(whole[begin:end]))
        blocks.append((whole[at : at + 1], value))
        at = end
    return blocks


def put_together(blocks: Blocks) -> bytes:
    whole = format.MAGIC
    for kind, value in blocks:
        packed = ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)
        whole += block(len(whole), kind, zstandard.ZstdCompressor().compress(packed))
    return whole


def block(at: int, kind: bytes, payload: bytes) -> bytes:
    digest = format._digest(at, kind, payload)
    return kind + len(payload).to_bytes(4, "big") + digest + payload


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Blocks:
    """Three threads: a conversation, a pruned DeltaChannel, a value in an artifact store."""
    folder = tmp_path_factory.mktemp("honest")
    with SqliteSaver(folder / "agent.db", durability="normal", offload_above=500) as saver:
        histories.run(saver, "t", turns=1)
        histories.run_deltas(saver, "deltas", turns=3)
        saver.prune(["deltas"], strategy=KeepLast(1))
        values = {"channel_values": {"x": "y" * 3000}, "channel_versions": {"x": "1"}}
        saver.put(thread("big"), {**empty_checkpoint(), **values}, {}, {"x": "1"})
        export_threads(saver, folder / "threads.lgd")
    blocks = taken_apart((folder / "threads.lgd").read_bytes())
    assert {kind for kind, _ in blocks} == {b"A", b"O", b"T", b"I", b"K", b"C", b"W", b"E", b"Z"}
    return blocks


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "threads.lgd"


@pytest.fixture(params=["sqlite", "valkey"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A saver with a thread of its own, which nothing may touch."""
    place = tmp_path / "target"
    place.mkdir()
    with backends.ALL[request.param](place, artifacts=str(place / "artifacts")) as saver:
        histories.run(saver, "own", turns=0)
        yield saver


def first(blocks: Blocks, kind: bytes) -> Any:
    """The value of the first block of a kind, to be changed."""
    return next(value for each, value in blocks if each == kind)


def copied(blocks: Blocks) -> Blocks:
    return [(kind, ormsgpack.unpackb(ormsgpack.packb(value))) for kind, value in blocks]


def check_refused(target: Any, file: Path, blocks: Blocks, match: str) -> None:
    before = contents(target)
    file.write_bytes(put_together(blocks))
    with pytest.raises(DamagedArchive, match=match):
        import_threads(target, file)
    assert contents(target) == before


# ---- numbers and references ----------------------------------------------------------------------


def test_items_cannot_be_numbered_into_other_threads(
    target: Any, file: Path, honest: Blocks
) -> None:
    for number in (1 << 32, -1, (1 << 32) * 5 + 1, 1 << 63, "0", 1.5, None):
        blocks = copied(honest)
        first(blocks, b"I")[0][0] = number
        check_refused(target, file, blocks, "there is no item")


REFS: dict[str, Callable[[int], Any]] = {
    "an endless value": lambda n: [["x", [0, 1 << 60], 0]],
    "a run with holes": lambda n: [["x", [0, n + 1], 0]],
    "a negative number": lambda n: [["x", [-1, 1], 0]],
    "half a run": lambda n: [["x", [0], 0]],
    "an unknown kind": lambda n: [["x", [0, 1], 9]],
    "text": lambda n: [["x", ["a", "b"], 0]],
    "a spine that is none": lambda n: [["x", [0, 1], 0, [0, 1]]],
}


@pytest.mark.parametrize("refs", REFS)
def test_references_lead_to_items_of_the_thread(
    refs: str, target: Any, file: Path, honest: Blocks
) -> None:
    blocks = copied(honest)
    begin, row = first(blocks, b"T"), first(blocks, b"C")[0]
    row[4] = ormsgpack.packb(REFS[refs](begin[4]))
    check_refused(target, file, blocks, "reference|item|elements")


def test_a_value_of_a_billion_elements_is_not_unrolled(
    target: Any, file: Path, honest: Blocks
) -> None:
    blocks = copied(honest)
    begin, items, row = (first(blocks, kind) for kind in (b"T", b"I", b"C"))
    number, begin[4] = begin[4], begin[4] + 1
    items.append([number, SPINE_MARK + ormsgpack.packb([0, 1] * 100_000)])
    row[0][4] = ormsgpack.packb([["x", [0, 1], 0, [number, 1] + [-1, 1] * 10_000]])
    check_refused(target, file, blocks, "reference|elements")
    row[0][4] = ormsgpack.packb([["x", [0, 1], 0, [number, 1, *[0, 0] * 10]]])
    check_refused(target, file, blocks, "reference|elements|item")


CHANGES: dict[str, Callable[[Blocks], Any]] = {
    "a checkpoint twice": lambda b: first(b, b"C").append(first(b, b"C")[0]),
    "an item that is text": lambda b: first(b, b"I")[0].__setitem__(1, "text"),
    "an item that is empty": lambda b: first(b, b"I")[0].__setitem__(1, b""),
    "a body that is a list": lambda b: first(b, b"C")[0].__setitem__(5, [1]),
    "an id that is a number": lambda b: first(b, b"C")[0].__setitem__(1, 7),
    "an id that is empty": lambda b: first(b, b"C")[0].__setitem__(1, ""),
    "a thread without a name": lambda b: first(b, b"T").__setitem__(0, ""),
    "a thread with a long name": lambda b: first(b, b"T").__setitem__(0, "x" * 5000),
    "a head that is nowhere": lambda b: first(b, b"T").__setitem__(1, [["", "no"]]),
    "an index that is huge": lambda b: first(b, b"W")[0].__setitem__(3, 1 << 63),
    "no values": lambda b: first(b, b"W")[0].__setitem__(4, 0),
    "a claim of nothing": lambda b: first(b, b"K")[0].__setitem__(0, 999),
    "a claim that is a path": lambda b: first(b, b"K")[0].__setitem__(
        1, ormsgpack.packb(["../../../../etc/x", bytes(32), 1, 0])
    ),
    "an artifact that ends early": lambda b: first(b, b"O").__setitem__(1, 1 << 40),
    "an artifact that is text": lambda b: first(b, b"O").__setitem__(3, "text"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_cannot_be_is_refused(change: str, target: Any, file: Path, honest: Blocks) -> None:
    blocks = copied(honest)
    CHANGES[change](blocks)
    if change == "a checkpoint twice":
        first(blocks, b"T")[2] += 1
    check_refused(target, file, blocks, r"threads\.lgd, at byte")


@pytest.mark.parametrize(
    "stores",
    [
        {"../../etc": ["file:///tmp"]},
        {"0" * 16: ["lent:" * 300 + "file:///tmp"]},
        {"0" * 16: [f"guest-{'0' * 16}:" * 300 + "file:///tmp"]},
        {"0" * 16: ["beside:"]},
        {"0" * 16: ["file:///" + "x" * 20_000]},
        {"0" * 16: [["file:///tmp"]]},
        ["file:///tmp"],
    ],
    ids=["path", "lent", "guests", "private", "long", "list", "no ids"],
)
def test_places_of_artifacts_are_urls(stores: Any, target: Any, file: Path, honest: Blocks) -> None:
    blocks = copied(honest)
    blocks.insert(1, (b"S", stores))
    check_refused(target, file, blocks, "a record cannot be read")


def test_data_that_asks_to_run_code_is_refused_when_it_is_read(
    target: Any, file: Path, honest: Blocks, tmp_path: Path
) -> None:
    blocks, touched = copied(honest), tmp_path / "touched"
    call = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(["os", "mkdir", str(touched)])))
    at = next(n for n, (kind, value) in enumerate(blocks) if kind == b"T" and value[0] == "t")
    items = next(value for kind, value in blocks[at:] if kind == b"I")
    for item in items:
        if item[1][:1] != SPINE_MARK:
            item[1] = b"\x04" + call
    file.write_bytes(put_together(blocks))
    import_threads(target, file, ["t"])
    with pytest.raises(UnsafeTypeError, match=r"os\.mkdir"):
        target.get_tuple(thread("t"))
    assert not touched.exists()


# ---- bombs ---------------------------------------------------------------------------------------


def test_a_small_file_that_unpacks_to_much_is_refused(
    target: Any, file: Path, honest: Blocks
) -> None:
    blocks = copied(honest)
    first(blocks, b"I")[0][1] = bytes(40 << 20)
    file.write_bytes(put_together(blocks))
    assert file.stat().st_size < 1 << 20
    before = contents(target)
    with pytest.raises(ConfigurationError, match=r"unpacks to more than max_bytes= allows"):
        import_threads(target, file, max_bytes="16 MiB")
    assert contents(target) == before


@pytest.mark.parametrize("kind", [b"A", b"O", b"S", b"Z", b"T"])
def test_no_block_between_threads_is_large(
    kind: bytes, target: Any, file: Path, honest: Blocks
) -> None:
    blocks = copied(honest)
    at = 0 if kind == b"A" else next(n for n, (each, _) in enumerate(blocks) if each == b"T")
    blocks.insert(at, (kind, bytes(format.LARGEST_APART + 1)))
    check_refused(target, file, blocks, "a block declares [0-9]+ bytes")


def test_a_size_that_no_frame_has_is_not_reserved(target: Any, file: Path, honest: Blocks) -> None:
    whole = put_together(honest[:1])
    frame = zstandard.MAGIC_NUMBER.to_bytes(4, "little") + b"\xe0" + (1 << 45).to_bytes(8, "little")
    file.write_bytes(whole + block(len(whole), b"T", frame + bytes(64)))
    with pytest.raises(DamagedArchive, match="a block declares"):
        import_threads(target, file)


def test_values_nested_without_end_are_refused(target: Any, file: Path, honest: Blocks) -> None:
    whole = put_together(honest[:1])
    payload = zstandard.ZstdCompressor().compress(b"\x91" * 100_000 + b"\xc0")
    file.write_bytes(whole + block(len(whole), b"T", payload))
    with pytest.raises(DamagedArchive, match="cannot be read"):
        import_threads(target, file)


# ---- at random -----------------------------------------------------------------------------------

ODD: list[Any] = [
    *(None, True, -1, 0, 1, 1 << 31, 1 << 63, -(1 << 63), 1.5, float("nan")),
    *("", "x", "\0", "../../etc", "a" * 2000, b"", b"\0", b"\xff" * 20, b"\xfd" * 40, b"\xfe" * 9),
    *([], [[]], [-1, -1], {}, {"a": 1}, {1: 2}),
]


def changed(value: Any, dice: random.Random) -> Any:
    """The same value with something in it replaced, left out, doubled or moved."""
    if isinstance(value, list) and value and dice.random() < 0.85:
        value = list(value)
        at, what = dice.randrange(len(value)), dice.random()
        if what < 0.75:
            value[at] = changed(value[at], dice)
        elif what < 0.85:
            del value[at]
        else:
            value.insert(dice.randrange(len(value)), value[at])
        return value
    if isinstance(value, bytes) and value and dice.random() < 0.6:
        at = dice.randrange(len(value))
        return value[:at] + dice.choice([b"", b"x", dice.randbytes(1) + value[at + 1 :]])
    if type(value) is int and dice.random() < 0.5:
        return value + dice.choice([-1, 1, 7, -100])
    return dice.choice(ODD)


def use(saver: Any) -> None:
    """What a user does with threads, whatever is in them: it works, or it is told why not."""
    for name in THREADS:
        for act in (
            lambda name=name: list(saver.list(thread(name))),
            lambda name=name: saver.get_tuple(thread(name)),
            lambda name=name: saver.stats([name]),
            lambda name=name: saver.prune([name], strategy=KeepLast(1)),
            lambda name=name: saver.copy_thread(name, f"{name} too"),
            lambda name=name: saver.check_artifacts(name),
            lambda name=name: histories.delta_graph(saver).get_state(thread(name)),
        ):
            try:
                act()
            except DurableError:
                pass
        saver.delete_threads([name, f"{name} too"])


def test_archives_changed_at_random_do_no_harm(
    target: Any, file: Path, honest: Blocks, long: bool
) -> None:
    dice, before, imported = random.Random(9), contents(target), 0
    for _ in range(3000 if long else 60):
        blocks = copied(honest)
        for _ in range(dice.choice([1, 1, 2])):
            at = dice.randrange(len(blocks))
            blocks[at] = blocks[at][0], changed(blocks[at][1], dice)
        file.write_bytes(put_together(blocks))
        try:
            import_threads(target, file)
            imported += 1
        except DurableError:
            assert contents(target) == before
            continue
        use(target)
        assert contents(target) == before
    assert imported
