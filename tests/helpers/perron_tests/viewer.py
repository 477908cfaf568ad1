"""Server in a thread, and browser tabs that show the viewer."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlencode, urlsplit

import torch
import uvicorn

from perron.serve.app import create_app, listen, server_url
from perron.serve.limits import Limits
from perron_tests.chromium import quiet_tab
from perron_tests.pipelines import small_pipeline

MODELS = {
    "eigen": ("text", "centrality, l2"),  # two heads
    "attentive": ("text", "self-attention"),
    "highest": ("text", "max"),
    "pairs": ("pair", "centrality"),
    "reviews": ("document", "centrality"),
}
MAX_WORDS = 600  # words

TEXT = "It was not a good film, but the odd one was."
OTHER = "the film was bad"
DOCUMENT = "It was a film. It was not good. The other was bad."
WIDE = {"width": 1280, "height": 860}
NARROW = {"width": 360, "height": 740}
HTTP_ERROR = "Failed to load resource"  # Chromium logs this for every status >= 400
EXPLAIN = "**/v1/explain"


def pipelines():
    pipelines_by_name = {}
    for name, (kind, aggregator) in MODELS.items():
        pipeline = small_pipeline(kind, aggregator)
        pipeline.name = name
        pipelines_by_name[name] = pipeline
    eigen = pipelines_by_name["eigen"]
    # The other models read only ten words.
    eigen.processor = replace(eigen.processor, max_words=MAX_WORDS)
    with torch.no_grad():  # make its edges more different
        for weights in eigen.model.aggregator.parameters():
            weights.mul_(16)
    return pipelines_by_name


class ServerThread:
    """Server that can be stopped and restarted at the same address."""

    def __init__(self, models, api_key=None):
        self.models = list(models)
        self.api_key = api_key
        self.port = 0
        self.start()

    def start(self):
        sock = listen("127.0.0.1", self.port)
        self.url = server_url(sock)
        self.port = sock.getsockname()[1]
        limits = Limits(max_explained_words=MAX_WORDS)
        self.app = create_app(self.models, limits, self.api_key)
        self.server = uvicorn.Server(
            uvicorn.Config(self.app, ws="none", log_config=None, lifespan="on")
        )
        self.thread = threading.Thread(target=self.server.run, args=([sock],))
        self.thread.start()
        while not self.server.started:  # compiling the kernels takes seconds
            assert self.thread.is_alive()
            time.sleep(0.02)

    def stop(self):
        self.server.should_exit = True
        self.thread.join()

    def link(self, text="", *models, **fields):
        """Return the permalink of a text and models."""
        items = [("model", model) for model in models]
        items += [("text", text), *fields.items()]
        return f"{self.url}/#{urlencode(items)}"


@contextmanager
def open_tab(browser, expected=(), **settings):
    """Open a tab that records the requests to /v1/explain in `tab.requests`."""
    with quiet_tab(browser, expected, **settings) as tab:
        tab.requests = []

        def record(request):
            if urlsplit(request.url).path == "/v1/explain":
                tab.requests.append(request.post_data_json)

        tab.on("request", record)
        yield tab


def chip(tab, model):
    return tab.get_by_role("checkbox", name=model)


def field(tab, name):
    return tab.get_by_role("textbox", name=name)


def wait_until_idle(tab):
    """Wait for the results and the end of all animations."""
    tab.wait_for_function(
        "() => document.getElementById('cards').ariaBusy !== 'true'"
        " && document.getElementById('results').textContent.trim()"
        " && !document.getAnimations().length"
    )
