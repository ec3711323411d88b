"""An https address before a service on this machine: a relay that ends TLS, with a certificate for `localhost`."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HOST = "localhost"
BLOCK_BYTES = 1 << 16


class Served(NamedTuple):
    """Where the service is reached by https, and the file of certificates by which a client believes it."""

    url: str
    authorities: Path


@contextmanager
def served_by_tls(port: int, folder: Path) -> Iterator[Served]:
    """Relay to this port of 127.0.0.1 until the end; its files are in the folder."""
    terms = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authorities = folder / "certificate.pem"
    terms.load_cert_chain(authorities, _write_certificate(authorities))
    with socket.create_server(("127.0.0.1", 0)) as listening, asyncio.Runner() as runner:
        ended, loop = asyncio.Event(), runner.get_loop()
        thread = threading.Thread(target=runner.run, args=(_serve(listening, port, terms, ended),), daemon=True)
        thread.start()
        try:
            yield Served(f"https://{HOST}:{listening.getsockname()[1]}", authorities)
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join()


def _write_certificate(path: Path) -> Path:
    """Write a self-signed certificate, and its key beside it; returns the file of the key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    beside = path.with_suffix(".key")
    beside.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return beside


async def _serve(listening: socket.socket, port: int, terms: ssl.SSLContext, ended: asyncio.Event) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        finally:
            for one in (writer, there[1]):
                if not one.is_closing():
                    one.transport.abort()
            await asyncio.sleep(0)  # in which they are closed

    async with await asyncio.start_server(relay, sock=listening, ssl=terms):
        await ended.wait()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(BLOCK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.close()
