"""`rediss://` against a server that speaks nothing but TLS."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import HOST, free_port, running

from langgraph_durable import RedisSaver, StorageUnreachable
from langgraph_durable.testing.model import at, checkpoint, numbered


def openssl(folder: Path, *words: str) -> None:
    if shutil.which("openssl") is None:
        raise RuntimeError("there is no openssl on this machine: run tests/install_servers.sh")
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def certify(folder: Path, name: str) -> Path:
    """A certificate for this host that vouches for itself, and its key."""
    subject = ("-subj", "/CN=langgraph_durable tests", "-addext", f"subjectAltName=IP:{HOST}")
    made = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2")
    openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made, *subject)
    return folder / f"{name}.pem"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    certificate, port = certify(folder, "server"), free_port()
    config = {
        "tls_port": port,
        "tls_cert_file": certificate,
        "tls_key_file": certificate.with_suffix(".key"),
        "tls_ca_cert_file": certificate,
        "tls_auth_clients": "no",
    }
    with running("redis", **config):
        yield f"rediss://{HOST}:{port}/0"


def made(n: int) -> Any:
    return checkpoint(numbered(n), {"n": n}, {"n": f"{n}"}), {"step": n}, {"n": f"{n}"}


async def test_both_colours_work_over_tls(url: str, folder: Path) -> None:
    with RedisSaver(f"{url}?ssl_ca_certs={folder}/server.pem") as saver:
        saver.put(at("t"), *made(1))
        await saver.aput(at("t", numbered(1)), *made(2))
        found = await saver.aget_tuple(at("t"))
        assert found is not None
        assert found == saver.get_tuple(at("t"))
        assert found.checkpoint["channel_values"] == {"n": 2}


def test_a_server_that_cannot_prove_who_it_is_is_not_trusted(url: str, folder: Path) -> None:
    other = certify(folder, "other")
    with (
        RedisSaver(f"{url}?ssl_ca_certs={other}", retry=0) as saver,
        pytest.raises(StorageUnreachable, match=r"(?i)certificate"),
    ):
        saver.get_tuple(at("t"))


def test_plain_words_to_a_tls_port_are_a_typed_error(url: str) -> None:
    with (
        RedisSaver(url.replace("rediss", "redis"), retry=0) as saver,
        pytest.raises(StorageUnreachable),
    ):
        saver.get_tuple(at("t"))
