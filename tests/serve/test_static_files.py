"""The files of the viewer are served, and no other files."""

from contextlib import closing
from urllib.parse import unquote

import pytest
from perron_tests.clients import Client, error_of

from perron.serve import app as app_module
from perron.serve import create_app


@pytest.fixture(scope="module")
def site(pipelines, tmp_path_factory):
    """Return a client of an application that serves temporary folders."""
    tmp_path = tmp_path_factory.mktemp("served")
    page, graph = tmp_path / "site" / "static", tmp_path / "graph"
    for folder in (page, page / "graph", page / "more", graph):
        folder.mkdir(parents=True)
    (tmp_path / "site" / "secret.js").write_text("secret")
    (page / "index.html").write_text("<p>the page")
    (page / "app.js").write_text("the script")
    (page / "more" / "style.css").write_text("the style")
    (page / "graph" / "graph.js").write_text("hidden by the other folder")
    (page / "secret.py").write_text("secret")
    (page / ".secret").write_text("secret")
    (page / "link.js").symlink_to(tmp_path / "site" / "secret.js")
    (page / "way").symlink_to(tmp_path / "site")
    (graph / "graph.js").write_text("the graph")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app_module, "VIEWER_FOLDER", page)
        patched.setattr(app_module, "GRAPH_FOLDER", graph)
        app = create_app(pipelines)
    with closing(Client(app)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "content", "media_type"),
    [
        ("/", "<p>the page", "text/html; charset=utf-8"),
        ("/static/index.html", "<p>the page", "text/html; charset=utf-8"),
        ("/static/app.js", "the script", "text/javascript; charset=utf-8"),
        ("/static/more/style.css", "the style", "text/css; charset=utf-8"),
        ("/static/graph/graph.js", "the graph", "text/javascript; charset=utf-8"),
    ],
)
def test_media_types_do_not_depend_on_the_system(
    site, path, content, media_type, monkeypatch
):
    monkeypatch.setattr(
        "starlette.responses.guess_type", lambda *_, **__: ("odd/type", None)
    )
    response = site.get(path)
    assert (response.status_code, response.text) == (200, content)
    assert response.headers["content-type"] == media_type
    assert response.headers["cache-control"] == "no-cache"
    head = site.request("HEAD", path)
    assert (head.status_code, head.text) == (200, "")
    headers = {"if-none-match": response.headers["etag"]}
    assert site.get(path, headers=headers).status_code == 304


@pytest.mark.parametrize("value", ["bytes=0-1", "bytes=99-", "bytes=x", "odd"])
def test_range_requests_are_ignored(site, value):
    response = site.get("/static/app.js", headers={"range": value})
    assert (response.status_code, response.text) == (200, "the script")


@pytest.mark.parametrize(
    "path",
    [
        "/static",
        "/static/",
        "/static/more",
        "/static/more/",
        "/static/nothing.js",
        "/static/secret.py",
        "/static/.secret",
        "/static/link.js",
        "/static/way/secret.js",
        "/static/../secret.js",
        "/static/%2e%2e/secret.js",
        "/static/..%2fsecret.js",
        "/static/%2e%2e%2fsecret.js",
        "/static/more/..%2f..%2fsecret.js",
        "/static/..%5csecret.js",
        "/static/%252e%252e/secret.js",
        "/static//etc/hostname",
        "/static/%2fetc%2fhostname",
        "/static/graph/../../secret.js",
        "/static/graph/%2e%2e/site/secret.js",
        "/static/app.js%00",
        "/static/%00",
        "/static/" + "a" * 5000,
        "/static/%ff",
        "/secret.js",
    ],
)
def test_other_files_are_not_served(site, path):
    async def request():
        """Request the raw path, which httpx would normalize."""
        messages = []

        async def receive():
            return {"type": "http.disconnect"}

        async def send(message):
            messages.append(message)

        scope = {"type": "http", "method": "GET", "path": unquote(path)}
        scope |= {"raw_path": path.encode(), "query_string": b"", "root_path": ""}
        await site.app(scope | {"headers": [(b"host", b"localhost")]}, receive, send)
        return messages

    start, *body = site.run(request())
    assert start["status"] == 404
    assert b"secret" not in b"".join(message["body"] for message in body)


def test_missing_folders_are_404(serving, tmp_path, monkeypatch):
    monkeypatch.setattr(app_module, "VIEWER_FOLDER", tmp_path / "nothing")
    monkeypatch.setattr(app_module, "GRAPH_FOLDER", tmp_path / "nothing")
    client = serving()
    for path in ("/", "/static/app.js", "/static/graph/graph.js"):
        assert error_of(client.get(path), 404)["code"] == "not_found"
    assert client.get("/healthz").status_code == 200
