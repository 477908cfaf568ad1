from contextlib import ExitStack, closing

import pytest
from perron_tests.clients import Client
from perron_tests.pipelines import small_pipeline
from perron_tests.viewer import WIDE, Running, tab_of
from perron_tests.viewer import pipelines as viewer_models

from perron.serve import Limits, create_app


def named(kind, aggregator="centrality", **settings):
    pipeline = small_pipeline(kind, aggregator, **settings)
    pipeline.name = kind if aggregator == "centrality" else f"{kind}-{aggregator}"
    return pipeline


@pytest.fixture(scope="module")
def pipelines():
    """Return a model of each kind, the one for texts first."""
    return [named("text"), named("pair"), named("document"), named("text", "mean")]


@pytest.fixture
def serving(pipelines):
    """Return a function that starts an application and returns a client of it."""
    with ExitStack() as started:

        def serve(key=None, **limits):
            app = create_app(pipelines, Limits(**limits), key)
            return started.enter_context(closing(Client(app)))

        yield serve


@pytest.fixture(scope="module")
def client(pipelines):
    """Return a client of an application with the limits that it has by itself."""
    with closing(Client(create_app(pipelines))) as client:
        yield client


@pytest.fixture(scope="module")
def models():
    return viewer_models()


@pytest.fixture(scope="module")
def server(browser, models):
    running = Running(models.values())
    yield running
    running.stop()


@pytest.fixture
def tab(browser, server):
    with tab_of(browser, viewport=WIDE) as opened:
        yield opened


@pytest.fixture
def expect(browser):
    from playwright.sync_api import expect

    return expect
