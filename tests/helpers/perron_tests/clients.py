"""A client that calls an application in this process, without a socket."""

import asyncio
import json

import httpx


class Client:
    """Starts the application; what it answers can be waited for one by one."""

    def __init__(self, app):
        self.app = app
        self.service = app.state.service
        self._runner = asyncio.Runner()
        self._life = app.router.lifespan_context(app)
        self._runner.run(self._life.__aenter__())
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def run(self, coroutine):
        return self._runner.run(coroutine)

    def ask(self, method, path, **request):
        return self.run(self.http.request(method, path, **request))

    def get(self, path, **request):
        return self.ask("GET", path, **request)

    def post(self, path, content=None, **request):
        """Send JSON: an object, or text that ought to be JSON."""
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        headers = {"content-type": "application/json", **request.pop("headers", {})}
        return self.ask("POST", path, content=content, headers=headers, **request)

    def together(self, path, contents):
        """Send several requests at once."""

        async def send():
            posts = [self.http.post(path, json=content) for content in contents]
            return await asyncio.gather(*posts)

        return self.run(send())

    def close(self):
        self.run(self.http.aclose())
        self.run(self._life.__aexit__(None, None, None))
        self._runner.close()


def error_of(answer, status):
    """Return the error of an answer, which has the one shape that errors have."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    (error,) = answer.json().values()
    assert answer.json() == {"error": error}
    assert set(error) == {"code", "message", "where"}
    assert error["message"]
    return error
