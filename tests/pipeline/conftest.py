import pytest
from layers.threads import one_thread  # noqa: F401
from pipeline.trained import small_pipeline


@pytest.fixture(params=["text", "document", "pair"])
def pipeline(request):
    return small_pipeline(request.param)
