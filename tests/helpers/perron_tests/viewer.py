"""The server in a thread, and tabs that look at it."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlencode, urlsplit

import torch
import uvicorn

from perron.serve.app import address_of, create_app, listen
from perron.serve.limits import Limits
from perron_tests.chromium import quiet_tab
from perron_tests.pipelines import small_pipeline

MODELS = {
    "eigen": ("text", "centrality, l2"),  # of two heads
    "attentive": ("text", "self-attention"),
    "highest": ("text", "max"),
    "pairs": ("pair", "centrality"),
    "reviews": ("document", "centrality"),
}
LONGEST = 600  # words

TEXT = "It was not a good film, but the odd one was."
OTHER = "the film was bad"
DOCUMENT = "It was a film. It was not good. The other was bad."
WIDE = {"width": 1280, "height": 860}
NARROW = {"width": 360, "height": 740}
REFUSED = "Failed to load resource"  # what chromium says of every status from 400 on
EXPLAIN = "**/v1/explain"


def pipelines():
    made = {}
    for name, (kind, aggregator) in MODELS.items():
        pipeline = small_pipeline(kind, aggregator)
        pipeline.name = name
        made[name] = pipeline
    eigen = made["eigen"]
    # The others stop at ten words.
    eigen.processor = replace(eigen.processor, max_words=LONGEST)
    with torch.no_grad():  # so that its edges differ
        for weights in eigen.model.aggregator.parameters():
            weights.mul_(16)
    return made


class Running:
    """A server that can be stopped and started again at the same address."""

    def __init__(self, models, key=None):
        self.models = list(models)
        self.key = key
        self.port = 0
        self.start()

    def start(self):
        bound = listen("127.0.0.1", self.port)
        self.address = address_of(bound)
        self.port = bound.getsockname()[1]
        limits = Limits(max_explained_words=LONGEST)
        self.app = create_app(self.models, limits, self.key)
        self.server = uvicorn.Server(
            uvicorn.Config(self.app, ws="none", log_config=None, lifespan="on")
        )
        self.thread = threading.Thread(target=self.server.run, args=([bound],))
        self.thread.start()
        while not self.server.started:  # the first answers take seconds to compile
            assert self.thread.is_alive()
            time.sleep(0.02)

    def stop(self):
        self.server.should_exit = True
        self.thread.join()

    def link(self, text="", *models, **more):
        """Return the permalink of a text and models."""
        fields = [("model", model) for model in models]
        return f"{self.address}/#{urlencode([*fields, ('text', text), *more.items()])}"


@contextmanager
def tab_of(browser, expected=(), **settings):
    """Give a quiet tab that knows what was sent to the models."""
    with quiet_tab(browser, expected, **settings) as tab:
        tab.asked = []

        def sent(request):
            if urlsplit(request.url).path == "/v1/explain":
                tab.asked.append(request.post_data_json)

        tab.on("request", sent)
        yield tab


def chip(tab, model):
    return tab.get_by_role("checkbox", name=model)


def field(tab, name):
    return tab.get_by_role("textbox", name=name)


def stands_still(tab):
    """Wait until the answer is there and nothing moves any more."""
    tab.wait_for_function(
        "() => document.getElementById('cards').ariaBusy !== 'true'"
        " && document.getElementById('results').textContent.trim()"
        " && !document.getAnimations().length"
    )
