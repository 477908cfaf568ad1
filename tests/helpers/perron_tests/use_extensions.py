"""Use a model with custom components in a new process.

    python -m perron_tests.use_extensions RUN AGGREGATOR

PERRON_PLUGINS names the modules of the components. AGGREGATOR has the settings of the
aggregator for scikit-learn, as JSON. Prints the results as JSON.
"""

import json
import pickle
import sys
from contextlib import closing
from pathlib import Path

import numpy as np

import perron
from perron.integrations.export import export_onnx
from perron.serve import create_app
from perron.sklearn import CentralityClassifier
from perron_tests.clients import Client
from perron_tests.exports import run_folder
from perron_tests.training import BAD, GOOD

TEXTS = ["a fine film", "some dull day"]


def main(folder: Path, aggregator: dict) -> dict:
    """Predict, explain, serve, export and fit."""
    pipeline = perron.load(folder)
    record = pipeline.explain(TEXTS[0])
    with closing(Client(create_app([pipeline]))) as client:
        served = client.post("/v1/predict", {"texts": TEXTS}).json()
        explained = client.post("/v1/explain", {"texts": TEXTS[:1]}).status_code
    export_onnx(pipeline, folder / "onnx")
    estimator = CentralityClassifier(
        aggregator,
        hidden_dim=8,
        embedding_dim=8,
        learning_rate=0.03,
        dropout=0.0,
        early_stopping=False,
        random_state=0,
    )
    estimator.fit(BAD * 8 + GOOD * 8, ["bad"] * 32 + ["good"] * 32)
    unpickled = pickle.loads(pickle.dumps(estimator))
    return {
        "aggregator": pipeline.model.config.settings.aggregator.model_dump(),
        "predicted": pipeline.predict(TEXTS),
        "weights": record.words[0].weights,
        "has_edges": record.words[0].has_edges,
        "served": served,
        "explained": explained,
        "exported": run_folder(folder / "onnx", TEXTS)["probabilities"].tolist(),
        "probabilities": pipeline.predict_proba(TEXTS).tolist(),
        "fitted": estimator.predict(["fine", "dull"]).tolist(),
        "unpickled": bool(
            np.array_equal(
                unpickled.predict_proba(TEXTS), estimator.predict_proba(TEXTS)
            )
        ),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2]))))
