"""Which metadata a checkpoint gets: the put's own, then the config's, never a credential.

LangGraph copies every scalar of `configurable` and of the run's metadata into the checkpoint, so
`configurable={"openai_api_key": ...}` ends up in the database in clear (aegra#267). Keys that
name credentials are left out here, judged by whole words: `author`, `token_count` and `monkey`
stay. What the caller hands to `put` itself is never touched, unless somebody on the way has copied
it there from the very same config, as LangGraph Server does with all of it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, CheckpointMetadata

logger = logging.getLogger("langgraph_durable")

_OF_LANGGRAPH = frozenset(CheckpointMetadata.__annotations__)
"""What a put says of its checkpoint, whoever else says the same: its source, its step ..."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# `names_credential` cuts a key into words and looks them up here. In doubt a key is a credential:
# leaving one out costs a warning, keeping one leaks it.
_SECRET = _words(
    "bearer cookie cookies cred creds credential credentials cvc cvv dsn jsessionid kennwort "
    "kubeconfig otp passcode passkey passphrase passwd passwort phpsessid pwd senha totp"
)
"""One of these is enough, wherever it stands."""
_GLUED = re.compile(
    r"password|secrets?$|.token$"
    r"|(access|api|auth|encryption|master|private|secret|signing|ssh)keys?(id)?$"
)
"""Likewise, when written together with other words: `apikey`, `clientsecret`, `PGPASSWORD`."""
_PAIRS = {
    "key keys": _words(
        "access account admin aes api app application auth azure client consumer decryption deploy "
        "encryption fernet gpg hmac integration jwt licence license master pgp private recovery "
        "rsa secret security server service session shared signing ssh ssl subscription symmetric "
        "tls wallet webhook write "
        "anthropic aws cohere datadog deepseek gcp gemini google groq hf huggingface langfuse "
        "langsmith llm mistral openai openrouter pinecone sendgrid serpapi stripe supabase tavily "
        "twilio"
    ),
    "tokens": _words("access api auth bearer bot id oauth refresh secret security session"),
    "pass": _words("admin db email ftp http imap login mail mysql proxy smtp ssh sudo user"),
    "code codes": _words("auth authorization backup mfa oauth recovery"),
    "phrase": _words("pass recovery secret seed"),
    "word": _words("pass"),
    "verifier": _words("code oauth"),
    "json": _words("account"),
    "string str": _words("conn connection"),
    "uri url": _words(
        "amqp broker database db mongo mongodb mysql postgres postgresql rabbitmq redis"
    ),
}
"""Credentials after one of these words: `private_key`, but `primary_key` is none."""
_AFTER = {word: before for words, before in _PAIRS.items() for word in words.split()}
_LAST = _words("auth authorization jwt token")
"""Credentials as the last word: `github_token`, `basic_auth`; not `token_count`, `auth_type`."""
_OF_TEXT = _words(
    "bos cached cls completion continuation end eos first input last mask max min next num output "
    "pad page pagination per prompt sep special start stop total unk"
)
"""A token after one of these is a piece of text or of a list: `eos_token`, `next_page_token`."""
_ABOUT = _words(
    "age at banner consent count disabled domain enabled expiration expired expires expiry in "
    "length lifetime limit name names on policy present provider required status strength ttl "
    "type usage valid verified"
)
"""As the last word: the key tells about a credential (`password_changed_at`), and is none."""
_WHETHER = _words("disable enable forgot has hide is missing needs require requires show use uses")
"""As the first word, likewise: `has_api_key`."""
_TRAILING = _words(
    "backup base64 current data default dev encoded encrypted header hint live new old plain prod "
    "production raw sandbox staging str string test v value"
)
"""Not counted at the end, as numbers are not: `GITHUB_TOKEN_PROD`, `auth_header`, `api_key_2`."""


@lru_cache(maxsize=4096)
def names_credential(key: str) -> bool:
    """Whether a configuration key names a secret.

    >>> keys = "openai_api_key", "author", "token_count", "githubToken", "monkey"
    >>> [key for key in keys if names_credential(key)]
    ['openai_api_key', 'githubToken']
    """
    words = [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", key)]
    paired = any(second in _AFTER and first in _AFTER[second] for first, second in pairwise(words))
    while words and (words[-1] in _TRAILING or words[-1].isdigit()):
        words.pop()
    if not words or words[-1] in _ABOUT or (words[0] in _WHETHER and len(words) > 1):
        return False
    unsplit = [part.lower() for part in re.split(r"[^A-Za-z]+", key)]  # `APIkey` cannot be cut
    if paired or not _SECRET.isdisjoint(words) or any(map(_GLUED.search, words)):
        return True
    if any(map(_GLUED.fullmatch, unsplit)):
        return True
    text = words[-1] == "token" and not _OF_TEXT.isdisjoint(words[-2:-1])
    return words[-1] in _LAST and not text


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
            if key in EXCLUDED_METADATA_KEYS or key.startswith("__"):
                continue
            if key in merged:
                copied = merged[key] is value and key not in _OF_LANGGRAPH
                if copied and not _may_be_copied(key, only, warned):
                    del merged[key]
            elif isinstance(value, (str, int, float)) and _may_be_copied(key, only, warned):
                merged[key] = value
    return merged


def _may_be_copied(key: str, only: Collection[str] | None, warned: set[str]) -> bool:
    if only is not None:
        return key in only or key == "run_id"
    if not names_credential(key):
        return True
    if key not in warned:
        warned.add(key)
        logger.warning(
            "%r looks like a credential and is not copied to checkpoint metadata; "
            "name it in metadata_keys= if it is none",
            key,
        )
    return False
