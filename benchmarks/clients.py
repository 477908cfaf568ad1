"""Clients of a server that ask, wait for the answer, and ask again: as lean as can be.

    python benchmarks/clients.py PORT TEXTS.json

Reads lines of standard input, each with a number of clients, of texts a request and of
seconds; prints for each what was answered, as JSON.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator

import uvloop

HEAD = (
    "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Content-Length: {}\r\n\r\n"
)
REQUESTS = 200  # different ones


class Client(asyncio.Protocol):
    """One connection; its next request follows on the answer."""

    def __init__(self, requests: Iterator[bytes], end: float) -> None:
        self.requests, self.end = requests, end
        self.seconds: list[float] = []
        self.errors = 0
        self.answer = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin."""
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        """Send the next request."""
        self.begin = time.perf_counter()
        self.transport.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        """Note the answer when it is whole."""
        self.answer += data
        head, found, body = self.answer.partition(b"\r\n\r\n")
        if not found:
            return
        start = head.index(b"content-length: ") + 16
        if len(body) < int(head[start:].split(b"\r\n", 1)[0]):
            return
        now = time.perf_counter()
        self.seconds.append(now - self.begin)
        self.errors += not head.startswith(b"HTTP/1.1 200 ")
        self.answer = b""
        if now < self.end:
            self.ask()
        else:
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Count a connection that the server closed."""
        if not self.done.done():
            self.errors += 1
            self.done.set_result(None)


def requests_of(texts: list[str], size: int) -> Iterator[bytes]:
    """Return requests with so many texts each, over and over."""
    endless = itertools.cycle(texts)
    made = []
    for _ in range(REQUESTS):
        body = json.dumps({"texts": list(itertools.islice(endless, size))}).encode()
        made.append(HEAD.format(len(body)).encode() + body)
    return itertools.cycle(made)


async def run(
    port: int, texts: list[str], count: int, size: int, seconds: float
) -> dict:
    """Let so many clients ask for so long."""
    requests = requests_of(texts, size)
    loop, cpu, begin = (
        asyncio.get_running_loop(),
        time.process_time(),
        time.perf_counter(),
    )
    clients = []
    for _ in range(count):
        _, client = await loop.create_connection(
            lambda: Client(requests, begin + seconds), "127.0.0.1", port
        )
        clients.append(client)
    await asyncio.gather(*(client.done for client in clients))
    taken = time.perf_counter() - begin
    cpu = time.process_time() - cpu
    for client in clients:
        client.transport.close()
    latencies = sorted(itertools.chain(*(client.seconds for client in clients)))
    return {
        "seconds": taken,
        "requests": len(latencies),
        "errors": sum(client.errors for client in clients),
        "p50": 1000 * latencies[len(latencies) // 2],
        "p99": 1000 * latencies[int(len(latencies) * 0.99)],
        "cpu": cpu,
    }


def main() -> None:
    """Answer what standard input asks for."""
    port, path = sys.argv[1:]
    with open(path) as file:
        texts = json.load(file)
    uvloop.install()
    for line in sys.stdin:
        count, size, seconds = line.split()
        result = run(int(port), texts, int(count), int(size), float(seconds))
        print(json.dumps(asyncio.run(result)), flush=True)


if __name__ == "__main__":
    main()
