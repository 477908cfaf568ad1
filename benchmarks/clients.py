"""Load generator for the serving benchmark, with as little overhead as possible.

    python benchmarks/clients.py PORT TEXTS.json

Each client sends a request, waits for the response and sends the next one. Each line of
standard input gives the number of clients, the texts per request and the seconds to
run. For each line, the results are printed as JSON.
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
REQUESTS = 200  # distinct requests


class Client(asyncio.Protocol):
    """A connection that sends its next request when the response arrives."""

    def __init__(self, requests: Iterator[bytes], end: float) -> None:
        self.requests, self.end = requests, end
        self.seconds: list[float] = []
        self.errors = 0
        self.response = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Send the first request."""
        self.transport = transport
        self.send()

    def send(self) -> None:
        """Send the next request."""
        self.begin = time.perf_counter()
        self.transport.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        """Record the response once it is complete."""
        self.response += data
        head, separator, body = self.response.partition(b"\r\n\r\n")
        if not separator:
            return
        start = head.index(b"content-length: ") + 16
        if len(body) < int(head[start:].split(b"\r\n", 1)[0]):
            return
        now = time.perf_counter()
        self.seconds.append(now - self.begin)
        self.errors += not head.startswith(b"HTTP/1.1 200 ")
        self.response = b""
        if now < self.end:
            self.send()
        else:
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Count an error if the server closed the connection early."""
        if not self.done.done():
            self.errors += 1
            self.done.set_result(None)


def make_requests(texts: list[str], size: int) -> Iterator[bytes]:
    """Cycle through requests with ``size`` texts each."""
    endless = itertools.cycle(texts)
    requests = []
    for _ in range(REQUESTS):
        body = json.dumps({"texts": list(itertools.islice(endless, size))}).encode()
        requests.append(HEAD.format(len(body)).encode() + body)
    return itertools.cycle(requests)


async def run(
    port: int, texts: list[str], count: int, size: int, seconds: float
) -> dict:
    """Run ``count`` clients for some seconds and return their statistics."""
    requests = make_requests(texts, size)
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
    elapsed = time.perf_counter() - begin
    cpu = time.process_time() - cpu
    for client in clients:
        client.transport.close()
    latencies = sorted(itertools.chain(*(client.seconds for client in clients)))
    return {
        "seconds": elapsed,
        "requests": len(latencies),
        "errors": sum(client.errors for client in clients),
        "p50": 1000 * latencies[len(latencies) // 2],
        "p99": 1000 * latencies[int(len(latencies) * 0.99)],
        "cpu": cpu,
    }


def main() -> None:
    """Run the loads given on standard input."""
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
