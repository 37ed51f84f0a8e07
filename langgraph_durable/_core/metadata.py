"""Which metadata a checkpoint gets: the put's own, then the config's, never a credential.

LangGraph copies every scalar of `configurable` and of the run's metadata into the checkpoint, so
`configurable={"openai_api_key": ...}` ends up in the database in clear (aegra#267). Keys that
name credentials are left out here, judged by whole words: `author`, `token_count` and `monkey`
stay. What the caller hands to `put` itself is never touched.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS

logger = logging.getLogger("langgraph_durable")

_ALWAYS = frozenset(
    "apikey accesskey accesstoken authtoken authorization bearer clientsecret cookie cookies "
    "credential credentials jwt passphrase passwd password passwords privatekey pwd secret "
    "secretkey secrets".split()
)
"""One of these words is enough."""
_LAST = frozenset({"token", "tokens"})
"""A credential as the last word (`github_token`), a quantity before others (`token_count`)."""
_COUNTED = frozenset("max min num total input output prompt completion cached new".split())
_KEY_OF = frozenset(
    "api access account auth client encryption license master private secret service shared "
    "signing ssh subscription".split()
)
"""`key` is a credential after one of these: `private_key`, but `primary_key` is not."""


@lru_cache(maxsize=4096)
def names_credential(key: str) -> bool:
    """Whether a configuration key names a secret.

    >>> [k for k in ("openai_api_key", "author", "token_count", "githubToken") if names_credential(k)]
    ['openai_api_key', 'githubToken']
    """
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", key)
    words = [word.lower() for word in re.split(r"[^A-Za-z0-9]+|\s+", spaced) if word]
    if not words:
        return False
    if not _ALWAYS.isdisjoint(words):
        return True
    if words[-1] in _LAST and not (len(words) > 1 and words[-2] in _COUNTED):
        return words[-1] == "token" or len(words) > 1
    pairs = zip(words, words[1:], strict=False)
    return any(second in ("key", "keys") and first in _KEY_OF for first, second in pairs)


def checkpoint_metadata(
    own: Mapping[str, Any],
    *sources: Mapping[str, Any] | None,
    only: Collection[str] | None = None,
    warned: set[str],
) -> dict[str, Any]:
    """`own`, then the scalars of `sources` (run metadata, configurable), as LangGraph merges them.

    `only` names the keys that may be copied (`run_id` always may). `warned` remembers which
    credentials have been mentioned.
    """
    merged = dict(own)
    for source in sources:
        for key, value in (source or {}).items():
            if key in merged or key in EXCLUDED_METADATA_KEYS or key.startswith("__"):
                continue
            if not isinstance(value, (str, int, float)):
                continue
            if key != "run_id" and only is not None and key not in only:
                continue
            if only is None and names_credential(key):
                if key not in warned:
                    warned.add(key)
                    logger.warning(
                        "%r looks like a credential and is not copied to checkpoint metadata; "
                        "name it in metadata_keys= if it is none",
                        key,
                    )
                continue
            merged[key] = value
    return merged
