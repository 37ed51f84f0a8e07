"""What artifacts cost: objects, reads of threads with handles, throughput on files and on S3.

Everything is a ratio: bytes over the size of the value, processor time over that of the same
thread with small dicts, wall time over a plain write and fsync of the same bytes, or over an
upload of them by obstore alone, in turns.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from entrants import FILE, Plan
from hosts import NotAvailable
from langgraph.checkpoint.base import empty_checkpoint
from measure import Figure, Promise, Reading, Section

from langgraph_durable import Artifact, ObjectArtifacts, SqliteSaver
from langgraph_durable.saver import DurableSaver

MB = 1_000_000
PIECE = 5 * MB


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def put(saver: DurableSaver, at: Any, values: dict[str, Any], step: int) -> Any:
    versions: Any = dict.fromkeys(values, f"{step:032}.0")
    checkpoint: Any = {**empty_checkpoint(), "channel_values": values}
    return saver.put(at, {**checkpoint, "channel_versions": versions}, {"step": step}, versions)


def storing(plan: Plan) -> Iterator[Figure]:
    """Offloaded values and handles on SQLite, with the folder beside the file."""
    folder = Path(tempfile.mkdtemp(dir=plan.directory))
    objects, size = kept_over_steps(folder, plan.pick(3, 20, 50))
    steps = plan.pick(3, 20, 50)
    limits = (Promise("ours sqlite", "one", 1),)
    name = f"objects for a 5 MB value over {steps} steps"
    yield Figure(name, "", {"ours sqlite": Reading.of([objects])}, limits, "full")
    limits = (Promise("ours sqlite", "≤ 1.05x", 1.05),)
    yield Figure("their bytes, over its size", "x", {"ours sqlite": Reading.of([size])}, limits)
    handles = Reading.of(handle_ratio(folder, plan.pick(3, 100, 300)) for _ in range(3))
    name = "get_tuple, ten handles of 5 MB / ten small dicts"
    limits = (Promise("ours sqlite", "≤ 1.5x", 1.5),)
    yield Figure(name, "x", {"ours sqlite": handles}, limits)
    for piece in (PIECE, 10 * PIECE):
        store, whole = write_ratios(folder, piece, plan.pick(1, 5, 15))
        limits = (Promise("ours sqlite", "≤ 1.5x", 1.5),)
        name = f"upload of {piece // MB} MB to a file / write + fsync"
        yield Figure(name, "x", {"ours sqlite": store}, limits, "full")
        name = f"put of a {piece // MB} MB value / write + fsync"
        yield Figure(name, "x", {"ours sqlite": whole}, limits, "full")
    yield from on_s3(plan, folder)


def on_s3(plan: Plan, folder: Path) -> Iterator[Figure]:
    """The same on the S3 server of the tests, over obstore with our bucket and nothing else."""
    try:
        bucket = plan.hosts.bucket()
    except NotAvailable as error:
        plan.missing["s3"] = str(error)
        return
    limits = (Promise("ours sqlite", "≤ 1.5x", 1.5),)
    for piece in (PIECE, 10 * PIECE):
        sent, read = object_ratios(bucket, folder, piece, plan.pick(1, 5, 15))
        for what, ratio in (("put of a", sent), ("get of a", read)):
            name = f"{what} {piece // MB} MB value on S3 / bare obstore"
            yield Figure(name, "x", {"ours sqlite": ratio}, limits, "full")


def object_ratios(
    bucket: ObjectArtifacts, folder: Path, piece: int, times: int
) -> tuple[Reading, Reading]:
    """Wall time of a put and of a read, over that of the same bytes by obstore alone."""
    import obstore

    spent: dict[str, list[float]] = {"put": [], "bare put": [], "get": [], "bare get": []}

    def timed(what: str, act: Callable[[], Any]) -> None:
        began = time.perf_counter()
        act()
        spent[what].append(time.perf_counter() - began)

    with SqliteSaver(folder / f"s3-{piece}.db", artifacts=bucket, cache_bytes=0) as saver:
        put(saver, config("warm"), {"a": os.urandom(piece)}, 1)
        for n in range(times):
            data, bare = os.urandom(piece), f"bare{piece}-{n}"
            ways = [
                ("put", lambda n=n, data=data: put(saver, config(f"t{n}"), {"a": data}, 1)),
                ("bare put", lambda b=bare, data=data: obstore.put(bucket._store, b, data)),
            ]
            for what, act in ways if n % 2 else ways[::-1]:
                timed(what, act)
            reads = [
                ("get", lambda n=n: saver.get_tuple(config(f"t{n}"))),
                ("bare get", lambda b=bare: bytes(obstore.get(bucket._store, b).bytes())),
            ]
            for what, act in reads if n % 2 else reads[::-1]:
                timed(what, act)
    base = {what: statistics.median(spent[f"bare {what}"]) for what in ("put", "get")}
    sent, read = (Reading.of(t / base[what] for t in spent[what]) for what in ("put", "get"))
    return sent, read


def kept_over_steps(folder: Path, steps: int) -> tuple[int, float]:
    """How many objects an unchanged value makes, and their bytes over its size."""
    with SqliteSaver(folder / FILE) as saver:
        at, data = config("t"), os.urandom(PIECE)
        for step in range(steps):
            at = put(saver, at, {"image": data, "step": step}, step + 1)
    stored = [f for f in (folder / f"{FILE}-artifacts").rglob("*") if f.is_file()]
    return len(stored), sum(f.stat().st_size for f in stored) / PIECE


def handle_ratio(folder: Path, times: int) -> float:
    """Processor time of reading ten handles, over that of ten small dicts."""
    with SqliteSaver(folder / FILE) as saver:
        ten = [Artifact.from_bytes(os.urandom(PIECE), name=f"{n}.png") for n in range(10)]
        put(saver, config("with"), {"files": ten, "n": 1}, 1)
        put(saver, config("without"), {"files": [{"name": a.name} for a in ten], "n": 1}, 1)
        spent = []
        for thread in ("with", "without"):
            began = time.process_time()
            for _ in range(times):
                saver.get_tuple(config(thread))
            spent.append(time.process_time() - began)
    return spent[0] / spent[1]


def write_ratios(folder: Path, piece: int, times: int) -> tuple[Reading, Reading]:
    """Wall time of the store alone, and of a put, over that of a plain write and fsync."""
    spent: tuple[list[float], list[float], list[float]] = ([], [], [])
    with SqliteSaver(folder / f"{piece}.db") as saver:
        put(saver, config("warm"), {"a": [os.urandom(300_000) for _ in range(50)]}, 1)
        store = saver._shelf.target
        ways: tuple[Callable[[int, bytes], Any], ...] = (
            lambda n, data: plain_write(folder / f"plain{piece}-{n}", data),
            lambda n, data: store.put(f"lgd-{saver._shelf.store}/0/alone{n}", data),
            lambda n, data: put(saver, config(f"t{n}"), {"a": data}, 1),
        )
        for n in range(times):
            data = os.urandom(piece)
            for k in range(3):  # in turns: what the disk still does for one is paid by the next
                which = (n + k) % 3
                began = time.perf_counter()
                ways[which](n, data)
                spent[which].append(time.perf_counter() - began)
    plain = statistics.median(spent[0])
    return Reading.of(t / plain for t in spent[1]), Reading.of(t / plain for t in spent[2])


def plain_write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


SECTIONS = (
    Section("artifacts", "Artifacts", storing, "The folder beside the file, and S3; ratios."),
)
