"""Text estimators for scikit-learn (extra ``train``)."""

try:
    from perron.integrations.scikit_learn import (
        CentralityClassifier,
        CentralityVectorizer,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"perron.sklearn needs {error.name}. Run: pip install 'perron[train]'",
        name=error.name,
    ) from error

__all__ = ["CentralityClassifier", "CentralityVectorizer"]
