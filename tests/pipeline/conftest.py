import pytest
from perron_tests.pipelines import small_pipeline


@pytest.fixture(params=["text", "document", "pair"])
def pipeline(request):
    return small_pipeline(request.param)
