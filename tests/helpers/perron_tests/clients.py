"""Client that calls an ASGI application in the same process, without a socket."""

import asyncio
import json

import httpx


class Client:
    """Synchronous client that runs the lifespan of the application."""

    def __init__(self, app):
        self.app = app
        self.service = app.state.service
        self._runner = asyncio.Runner()
        self._lifespan = app.router.lifespan_context(app)
        self._runner.run(self._lifespan.__aenter__())
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def run(self, coroutine):
        return self._runner.run(coroutine)

    def request(self, method, path, **options):
        return self.run(self.http.request(method, path, **options))

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, content=None, **options):
        """Send an object as JSON, or a string as is."""
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        return self.request("POST", path, content=content, headers=headers, **options)

    def post_concurrently(self, path, contents):
        """Send several requests concurrently."""

        async def send():
            posts = [self.http.post(path, json=content) for content in contents]
            return await asyncio.gather(*posts)

        return self.run(send())

    def close(self):
        self.run(self.http.aclose())
        self.run(self._lifespan.__aexit__(None, None, None))
        self._runner.close()


def error_of(response, status):
    """Return the error of a response, after checking its status and format."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    (error,) = response.json().values()
    assert response.json() == {"error": error}
    assert set(error) == {"code", "message", "where"}
    assert error["message"]
    return error
