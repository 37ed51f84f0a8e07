"""The verbs that write: `put`, `put_writes`, `copy`, `restore`."""

from __future__ import annotations

from langgraph_durable._core.dumps import Dump, exists_already, tallies
from langgraph_durable._core.records import CheckpointDraft, Draft, Stored, WriteRow, WritesDraft
from langgraph_durable._core.refs import Finals
from langgraph_durable._core.seal import name, unname
from langgraph_durable._core.storage import Stale
from langgraph_durable._sqlite import measuring, rows, tombs, watching
from langgraph_durable._sqlite.notes import Notes, ThreadNote
from langgraph_durable._sqlite.rows import Connection, Name, new_epoch
from langgraph_durable._sqlite.schema import BITS, MOST_ITEMS
from langgraph_durable.errors import ConcurrentUpdate, CorruptionError

PUT = "INTO lgd_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)"
PUT_WRITE = "INTO lgd_writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SET_HEAD = "INSERT INTO lgd_heads VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET id = excluded.id"
ADD_TO_TALLY = (
    "INSERT INTO lgd_tallies VALUES (?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET count = count + excluded.count"
)


def put(conn: Connection, notes: Notes, draft: CheckpointDraft) -> Stored:
    note = _thread_for(conn, notes, draft)
    head = _head_of(conn, note, draft.thread_id, draft.ns)
    if draft.guard.sole and head not in (draft.parent, draft.id):
        lenient = draft.guard.lenient and head is not None
        if not lenient or _is_stored(conn, note.tid, draft.ns, draft.parent):
            raise ConcurrentUpdate(draft.thread_id, draft.parent, head)
    finals, size = _append(conn, note, draft)
    watching.touch(conn, note, draft)
    row = draft.row(finals)
    values = rows.checkpoint_values(note.tid, row)
    added = conn.execute(f"INSERT OR IGNORE {PUT}", values).rowcount
    if not added:
        conn.execute(f"REPLACE {PUT}", values)
    leads = draft.guard.lead or head == draft.parent or (head or "") < draft.id
    if head is None or (added and leads):
        conn.execute(_SET_HEAD, (name(draft.thread_id), values[1], note.tid, values[2]))
        note.heads[draft.ns] = draft.id
    _announce(conn, note, draft)
    stored = Stored(note.epoch, finals, size + len(row.refs) + len(row.body))
    draft.memory.keep(stored)
    return stored


def put_writes(conn: Connection, notes: Notes, draft: WritesDraft) -> Stored:
    note = _thread_for(conn, notes, draft)
    place = note.tid, name(draft.ns), name(draft.id)
    head = _head_of(conn, note, draft.thread_id, draft.ns)
    if head != draft.id and draft.sole():
        raise ConcurrentUpdate(draft.thread_id, draft.id, head)
    taken: set[int] = set()
    if draft.ordinary:
        held = conn.execute(
            f"SELECT {rows.WRITE} FROM lgd_writes "
            "WHERE tid = ? AND ns = ? AND id = ? AND task_id = ? AND idx >= 0",
            (*place, name(draft.task_id)),
        )
        taken = draft.taken(map(rows.write, held))
    if not draft.special and taken.issuperset(write.idx for write in draft.ordinary):
        return Stored(note.epoch, (), 0)
    finals, size = _append(conn, note, draft)
    watching.touch(conn, note, draft)
    new = draft.rows(finals, taken)
    added = sum(_put_write(conn, note.tid, row) for row in new)
    if added:
        conn.execute(ADD_TO_TALLY, (*place, added))
    _announce(conn, note, draft)
    size += sum(len(row.refs) + len(row.body) for row in new)
    stored = Stored(note.epoch, finals, size)
    draft.memory.keep(stored)
    return stored


def _put_write(conn: Connection, tid: int, row: WriteRow) -> int:
    """Store a row of writes; how many rows that adds (a special write replaces its like)."""
    values = rows.write_values(tid, row)
    added = conn.execute(f"INSERT OR IGNORE {PUT_WRITE}", values).rowcount
    if not added:
        conn.execute(f"REPLACE {PUT_WRITE}", values)
    return added


def _announce(conn: Connection, note: ThreadNote, draft: CheckpointDraft | WritesDraft) -> None:
    """Note that the run wrote to the thread, unless that is known to stand there."""
    if draft.run is not None and not draft.memory.knows_run(note.epoch, draft.run):
        conn.execute("INSERT OR IGNORE INTO lgd_runs VALUES (?, ?)", (name(draft.run), note.tid))


def _thread_for(conn: Connection, notes: Notes, draft: Draft) -> ThreadNote:
    """The thread's number and epoch, made if need be; `Stale` if the draft's epoch has passed."""
    note = notes.threads.get(draft.thread_id)
    if note is None:
        sql = "SELECT tid, epoch, watched FROM lgd_threads WHERE thread_id = ?"
        found = conn.execute(sql, (name(draft.thread_id),)).fetchone()
        note = ThreadNote(*found) if found else None
    if draft.root is not None:
        tombs.check(conn, note, draft.thread_id, draft.root)
    seen = note.epoch if note else None
    if draft.epoch is not None and (draft.epoch != seen or draft.memory.is_void()):
        raise Stale
    if note is None:
        sql = "SELECT 1 FROM lgd_heads WHERE thread_id = ?"
        if conn.execute(sql, (name(draft.thread_id),)).fetchone():
            raise _damaged(draft.thread_id)
        note = ThreadNote(*_new_thread(conn, name(draft.thread_id)), following=0)
    notes.threads[draft.thread_id] = note
    return note


def _head_of(conn: Connection, note: ThreadNote, thread_id: str, ns: str) -> str | None:
    if ns not in note.heads:
        sql = "SELECT tid, id FROM lgd_heads WHERE thread_id = ? AND ns = ?"
        found = conn.execute(sql, (name(thread_id), name(ns))).fetchone()
        if found and found[0] != note.tid:
            raise _damaged(thread_id)
        note.heads[ns] = unname(found[1]) if found else None
    return note.heads[ns]


def _is_stored(conn: Connection, tid: int, ns: str, id: str | None) -> bool:
    sql = "SELECT 1 FROM lgd_checkpoints WHERE tid = ? AND ns = ? AND id = ?"
    return conn.execute(sql, (tid, name(ns), rows.optional(id))).fetchone() is not None


def _damaged(thread_id: str) -> CorruptionError:
    return CorruptionError(
        f"thread {thread_id!r}: its entry in the table of threads is missing or damaged"
    )


def _new_thread(conn: Connection, key: Name) -> tuple[int, int]:
    epoch = new_epoch()
    sql = "INSERT INTO lgd_threads (thread_id, epoch) VALUES (?, ?) RETURNING tid"
    return conn.execute(sql, (key, epoch)).fetchone()[0], epoch


def _append(conn: Connection, note: ThreadNote, draft: Draft) -> tuple[Finals, int]:
    """Number and store the draft's new items; the numbers they got, and the bytes."""
    if not draft.items:
        return (), 0
    start = note.tid << BITS
    if note.following is None:
        sql = "SELECT max(key) FROM lgd_items WHERE key BETWEEN ? AND ?"
        highest = conn.execute(sql, (start, start + MOST_ITEMS)).fetchone()[0]
        note.following = 0 if highest is None else highest - start + 1
    finals, add = draft.number(note.epoch, note.following)
    conn.executemany("INSERT INTO lgd_items VALUES (?, ?)", [(start + n, blob) for n, blob in add])
    note.following += len(add)
    if draft.claims:
        claims = draft.claimed(finals, {n for n, _ in add})
        sql = "INSERT OR IGNORE INTO lgd_claims VALUES (?, ?)"
        conn.executemany(sql, [(start + n, claim) for n, claim in claims])
    return finals, sum(len(blob) for _, blob in add)


def copy(conn: Connection, notes: Notes, source: str, target: str) -> bool:
    """Copy a thread, sealing everything anew for its new place."""
    found = measuring.dump(conn, source)
    if found is None:
        return False
    if not restore(conn, notes, found.renamed(target)):
        raise exists_already(target)
    return True


def restore(conn: Connection, notes: Notes, dump: Dump) -> bool:
    """Make a thread of a dump; False if there is one of that name."""
    key = name(dump.thread_id)
    if rows.thread_number(conn, dump.thread_id) is not None:
        return False
    notes.threads.pop(dump.thread_id, None)
    tid, _ = _new_thread(conn, key)
    conn.executemany(
        f"INSERT {PUT}", (rows.checkpoint_values(tid, row) for row in dump.sealed_rows())
    )
    conn.executemany(
        f"INSERT {PUT_WRITE}", (rows.write_values(tid, row) for row in dump.sealed_writes())
    )
    heads = [(key, name(ns), tid, name(id)) for ns, id in dump.heads.items()]
    conn.executemany("INSERT INTO lgd_heads VALUES (?, ?, ?, ?)", heads)
    counts = [(tid, name(ns), name(id), n) for (ns, id), n in tallies(dump.writes).items()]
    conn.executemany("INSERT INTO lgd_tallies VALUES (?, ?, ?, ?)", counts)
    runs = [(name(run), tid) for run in dump.runs]
    conn.executemany("INSERT INTO lgd_runs VALUES (?, ?)", runs)
    start = tid << BITS
    items = ((start + n, blob) for n, blob in dump.sealed_items())
    conn.executemany("INSERT INTO lgd_items VALUES (?, ?)", items)
    claims = [(start + n, claim) for n, claim in dump.claims]
    conn.executemany("INSERT INTO lgd_claims VALUES (?, ?)", claims)
    return True
