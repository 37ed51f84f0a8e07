"""The zstd dictionary of this release: what messages and records have in common, once for all.

`seal.py` compresses with it and needs the very same bytes to read what was stored, for ever: a
better dictionary is a second file with a packing code of its own. `benchmarks/train_dictionary.py`
made this one.
"""

from __future__ import annotations

import pathlib

import xxhash

_FILE = pathlib.Path(__file__).with_suffix(".bin")

DICTIONARY = _FILE.read_bytes()

# Another dictionary would decompress some of what is stored to something else, and not notice.
if xxhash.xxh3_64_hexdigest(DICTIONARY) != "27cf6103f3d95d6b":
    raise ImportError(f"{_FILE} is damaged: install langgraph-durable again")
