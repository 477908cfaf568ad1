"""Text estimators for scikit-learn (extra ``train``)."""

try:
    from perron.integrations.scikit_learn import (
        CentralityClassifier,
        CentralityVectorizer,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"perron.sklearn requires {error.name}. Install it with: pip install "
        "'perron[train]'",
        name=error.name,
    ) from error

__all__ = ["CentralityClassifier", "CentralityVectorizer"]
