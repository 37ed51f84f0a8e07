"""The whole contract, on Valkey and on Redis."""

from __future__ import annotations

from pathlib import Path

import servers

from langgraph_durable import RedisSaver
from langgraph_durable.testing import DurableContract


class TestValkey(DurableContract):
    def make_saver(self, directory: Path) -> RedisSaver:
        return RedisSaver(servers.shared("valkey").url, prefix=servers.prefix_for(directory))


class TestRedis(DurableContract):
    def make_saver(self, directory: Path) -> RedisSaver:
        return RedisSaver(servers.shared("redis").url, prefix=servers.prefix_for(directory))
