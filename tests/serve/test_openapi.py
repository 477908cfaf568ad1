"""Responses conform to the OpenAPI document, for generated requests."""

from contextlib import closing

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from perron_tests.clients import Client
from perron_tests.pipelines import small_pipeline
from pydantic import TypeAdapter
from schemathesis.specs.openapi.checks import positive_data_acceptance

from perron.explain import Explanation
from perron.serve import Limits, create_app

MODELS = [small_pipeline("text"), small_pipeline("pair", "mean")]
MODELS[1].name = "pair"
app = create_app(MODELS, Limits(batch_wait=0.0))
schema = schemathesis.openapi.from_dict(app.state.openapi)


@pytest.fixture(scope="module")
def client():
    with closing(Client(app)) as client:
        yield client


@schema.parametrize()
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_responses_conform_to_the_document(case, client):
    request = requests.Request(**case.as_transport_kwargs("http://localhost")).prepare()
    body = request.body or b""
    response = client.request(
        request.method, request.url, content=body, headers=dict(request.headers)
    )
    # Whether pairs are required depends on the model, not on the schema.
    case.validate_response(response, excluded_checks=[positive_data_acceptance])


def test_the_document_describes_records_requests_and_errors():
    document = app.state.openapi
    assert set(document["paths"]) == {
        "/healthz",
        "/metrics",
        "/v1/encode",
        "/v1/explain",
        "/v1/models",
        "/v1/predict",
    }
    parts = document["components"]["schemas"]
    template = "#/components/schemas/{model}"
    record = TypeAdapter(Explanation).json_schema(ref_template=template)
    for name, part in {**record.pop("$defs"), "Explanation": record}.items():
        assert set(parts[name]["properties"]) == set(part["properties"])
        assert parts[name]["description"] == part["description"]
    explain = document["paths"]["/v1/explain"]["post"]
    (body,) = explain["requestBody"]["content"].values()
    several, one = [
        parts[form["$ref"].rpartition("/")[2]] for form in body["schema"]["oneOf"]
    ]
    assert set(several["properties"]) == {"texts", "pairs", "model"}
    assert several["required"] == ["texts"]
    assert set(one["properties"]) == {"text", "pair", "model"}
    assert one["required"] == ["text"]
    assert several["additionalProperties"] is one["additionalProperties"] is False
    limit = parts["Limits"]["properties"]["max_texts"]
    assert (limit["default"], limit["minimum"]) == (256, 1)
    assert limit["description"] == "Maximum number of texts per request."
    for status in ("401", "404", "413", "422", "429", "500", "503"):
        (error,) = explain["responses"][status]["content"].values()
        assert error["schema"] == {"$ref": template.format(model="ErrorResponse")}


def test_the_document_is_served(client):
    assert client.get("/openapi.json").json() == app.state.openapi


def test_only_protected_paths_require_the_key():
    document = create_app(MODELS, api_key="key").state.openapi
    assert document["components"]["securitySchemes"] == {
        "key": {"type": "http", "scheme": "bearer"}
    }
    for path, methods in document["paths"].items():
        for method in methods.values():
            assert ("security" in method) == (path != "/healthz")
    for methods in app.state.openapi["paths"].values():
        assert not any("security" in method for method in methods.values())
