"""Threads move: from any saver to any other, and through a file.

copying   `copy_store`: between any two savers, checked by reading back
sides     one saver seen from outside, in either colour: what is there, read it, store it
paths     pending writes task by task, with their paths
queries   questions to the stores of known savers; `sources` says which, `official_redis` is one
sameness  whether two checkpoints say the same
archives  `export_threads` and `import_threads`: whole threads in one file
format    that file, block by block
soundness whether what a file tells of a thread can be one
contents  the artifacts of threads on their way
colours   one flow for sync and async callers
"""

from langgraph_durable.moving.archives import (
    ExportReport,
    ImportReport,
    aexport_threads,
    aimport_threads,
    export_threads,
    import_threads,
)
from langgraph_durable.moving.copying import CopyReport, acopy_store, copy_store

__all__ = [
    "CopyReport",
    "ExportReport",
    "ImportReport",
    "acopy_store",
    "aexport_threads",
    "aimport_threads",
    "copy_store",
    "export_threads",
    "import_threads",
]
