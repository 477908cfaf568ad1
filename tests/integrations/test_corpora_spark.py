"""`TextMapper` in an iterator `pandas_udf` of Spark, with the local Java."""

import os
import shutil
import sys

import pytest
from perron_tests.corpora import save_model
from perron_tests.pipelines import TEXTS

import perron

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        shutil.which("java") is None and "JAVA_HOME" not in os.environ,
        reason="Spark needs Java",
    ),
    # pyspark warns that it was not tested with pandas 3 and later.
    pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # its sockets
]
ROWS = 300


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("models") / "text")


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql", reason="needs the extra spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "40")
        .getOrCreate()
    )
    yield session
    session.stop()


def make_udf(mapper):
    """Return a user-defined function. Spark reads its type annotations."""
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql.functions import pandas_udf

    def compute(batches: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
        yield from mapper.map_series(batches)

    return pandas_udf(mapper.spark_type)(compute)


def test_a_column_is_labeled(spark, model):
    from perron.integrations.corpora import TextMapper

    texts = [TEXTS[number % len(TEXTS)] for number in range(ROWS)]
    frame = spark.createDataFrame(list(enumerate(texts)), "id long, text string")
    column = make_udf(TextMapper(model, threads=1))("text").alias("result")
    table = frame.repartition(5).select("id", column).select("id", "result.*")
    rows = sorted(table.collect())
    assert [row["id"] for row in rows] == list(range(ROWS))
    pipeline = perron.load(model)
    assert [row["label"] for row in rows] == pipeline.predict(texts)
    expected = pipeline.predict_proba(texts)
    actual = [list(row["probabilities"].asDict().values()) for row in rows]
    assert actual == pytest.approx(expected, abs=1e-5)
    assert list(rows[0]["probabilities"].asDict()) == list(pipeline.labels)


def test_a_column_is_encoded(spark, model):
    from perron.integrations.corpora import TextMapper

    frame = spark.createDataFrame(list(enumerate(TEXTS)), "id long, text string")
    column = make_udf(TextMapper(model, "encode", threads=1))("text").alias("result")
    rows = sorted(frame.select("id", column).select("id", "result.*").collect())
    actual = [row["vector"] for row in rows]
    assert actual == pytest.approx(perron.load(model).encode(TEXTS), abs=1e-5)
