"""What artifacts cost: objects, reads of threads with handles, and throughput on files and S3.

    python benchmarks/artifacts.py [--megabytes 200] [--s3 s3://bucket/prefix]

S3 takes its credentials and endpoint from the environment (AWS_ENDPOINT_URL, ...).
Times are medians; those that a disk decides are wall time, `get_tuple` is CPU time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

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


def timed(work: Callable[[int], object], times: int, clock: Callable[[], float]) -> float:
    found = []
    for n in range(times):
        began = clock()
        work(n)
        found.append(clock() - began)
    return statistics.median(found)


def one_object(folder: Path) -> None:
    """5 MB unchanged over 50 steps."""
    with SqliteSaver(folder / "steps.db") as saver:
        at, data = config("t"), os.urandom(PIECE)
        for step in range(50):
            at = put(saver, at, {"image": data, "step": step}, step + 1)
    stored = [f for f in (folder / "steps.db-artifacts").rglob("*") if f.is_file()]
    size = sum(f.stat().st_size for f in stored)
    print(f"5 MB over 50 steps: {len(stored)} object, {size / MB:.1f} MB")


def handles(folder: Path) -> None:
    """`get_tuple` with ten handles of 5 MB, and without."""
    with SqliteSaver(folder / "handles.db") as saver:
        ten = [Artifact.from_bytes(os.urandom(PIECE), name=f"{n}.png") for n in range(10)]
        put(saver, config("with"), {"files": ten, "n": 1}, 1)
        put(saver, config("without"), {"files": [{"name": a.name} for a in ten], "n": 1}, 1)
    for cold in (True, False):
        found = {}
        for thread in ("with", "without"):
            with SqliteSaver(folder / "handles.db") as saver:
                saver.get_tuple(config("none"))

                def read(
                    n: int, thread: str = thread, saver: Any = saver, cold: bool = cold
                ) -> None:
                    if cold:
                        saver._engine.memory.forget(thread)
                    saver.get_tuple(config(thread))

                found[thread] = timed(read, 300, time.process_time) * 1e6
        kind = "cold" if cold else "warm"
        print(
            f"get_tuple, {kind}: {found['with']:.0f} us with ten handles of 5 MB, "
            f"{found['without']:.0f} us with ten small dicts"
        )


def files(folder: Path, megabytes: int, piece: int) -> None:
    """Throughput on files against a plain write and fsync, taking turns.

    `stored` is the store alone; a put also hashes the value and commits the row.
    """
    ours: list[float] = []
    stored: list[float] = []
    plain: list[float] = []
    with SqliteSaver(folder / f"files{piece}.db") as saver:
        put(saver, config("warm"), {"a": [os.urandom(300_000) for _ in range(100)]}, 1)
        store = saver._shelf.target
        assert store is not None

        def write(n: int, data: bytes) -> None:
            with (folder / f"plain{piece}-{n}").open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

        ways = [
            (plain, write),
            (stored, lambda n, data: store.put(f"lgd-{saver._shelf.store}/0/alone{n}", data)),
            (ours, lambda n, data: put(saver, config(f"t{n}"), {"a": data}, 1)),
        ]
        for n in range(max(9, megabytes * MB // piece)):
            data = os.urandom(piece)
            for k in range(3):  # in turns: what the disk still does for one is paid by the next
                times, way = ways[(n + k) % 3]
                began = time.perf_counter()
                way(n, data)
                times.append(time.perf_counter() - began)
    tell("files, the store alone", "write + fsync", stored, plain, piece)
    tell("files, a put", "write + fsync", ours, plain, piece)


def s3(folder: Path, url: str, megabytes: int) -> None:
    """Throughput on S3 against bare obstore, taking turns."""
    import obstore

    store = ObjectArtifacts(url, client_options={"allow_http": True})
    pieces = [os.urandom(PIECE) for _ in range(max(1, megabytes * MB // PIECE))]
    ours: list[float] = []
    plain: list[float] = []
    with SqliteSaver(folder / "s3.db", artifacts=store) as saver:
        put(saver, config("warm"), {"a": os.urandom(PIECE)}, 1)
        for n, data in enumerate(pieces):
            began = time.perf_counter()
            obstore.put(store._store, f"plain{n}", data, use_multipart=False)
            plain.append(time.perf_counter() - began)
            began = time.perf_counter()
            put(saver, config(f"t{n}"), {"a": data}, 1)
            ours.append(time.perf_counter() - began)
    tell("S3, a put", "bare obstore", ours, plain, PIECE)


def tell(where: str, other: str, ours: list[float], plain: list[float], size: int) -> None:
    mine, theirs = statistics.median(ours), statistics.median(plain)
    print(
        f"{where} of {size // MB} MB: {size / MB / mine:.0f} MB/s, {other} "
        f"{size / MB / theirs:.0f} MB/s: {mine / theirs:.2f}x the time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--s3", default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one_object(folder)
        handles(folder)
        for piece in (PIECE, 10 * PIECE):
            files(folder, given.megabytes, piece)
        if given.s3:
            s3(folder, given.s3, given.megabytes)


if __name__ == "__main__":
    main()
