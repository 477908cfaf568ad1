from contextlib import ExitStack, closing

import pytest
from perron_tests.clients import Client
from perron_tests.pipelines import small_pipeline
from perron_tests.viewer import WIDE, ServerThread, open_tab
from perron_tests.viewer import pipelines as viewer_models

from perron.serve import Limits, create_app


def named_pipeline(kind, aggregator="centrality", **settings):
    pipeline = small_pipeline(kind, aggregator, **settings)
    pipeline.name = kind if aggregator == "centrality" else f"{kind}-{aggregator}"
    return pipeline


@pytest.fixture(scope="module")
def pipelines():
    """Return models of each kind. The first one is for texts."""
    kinds = [("text",), ("pair",), ("document",), ("text", "mean")]
    return [named_pipeline(*arguments) for arguments in kinds]


@pytest.fixture
def serving(pipelines):
    """Return a function that starts an application and returns a client."""
    with ExitStack() as stack:

        def serve(api_key=None, **limits):
            app = create_app(pipelines, Limits(**limits), api_key)
            return stack.enter_context(closing(Client(app)))

        yield serve


@pytest.fixture(scope="module")
def client(pipelines):
    """Return a client of an application with the default limits."""
    with closing(Client(create_app(pipelines))) as client:
        yield client


@pytest.fixture(scope="module")
def models():
    return viewer_models()


@pytest.fixture(scope="module")
def server(browser, models):
    server = ServerThread(models.values())
    yield server
    server.stop()


@pytest.fixture
def tab(browser, server):
    with open_tab(browser, viewport=WIDE) as opened:
        yield opened


@pytest.fixture
def expect(browser):
    from playwright.sync_api import expect

    return expect
