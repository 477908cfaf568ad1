"""The mapper in Spark's iterator `pandas_udf`, on the machine's own Java."""

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
        reason="Spark needs Java, and there is none",
    ),
    # pyspark says of every pandas since 3 that it is new to it.
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


def column(mapper):
    """Return a user-defined function; Spark reads the types of its signature."""
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql.functions import pandas_udf

    def computed(batches: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
        yield from mapper.series(batches)

    return pandas_udf(mapper.spark_type)(computed)


def test_a_column_gets_labels_and_probabilities(spark, model):
    from perron.integrations.corpora import TextMapper

    texts = [TEXTS[number % len(TEXTS)] for number in range(ROWS)]
    frame = spark.createDataFrame(list(enumerate(texts)), "id long, text string")
    computed = column(TextMapper(model, threads=1))("text").alias("found")
    found = frame.repartition(5).select("id", computed).select("id", "found.*")
    rows = sorted(found.collect())
    assert [row["id"] for row in rows] == list(range(ROWS))
    pipeline = perron.load(model)
    assert [row["label"] for row in rows] == pipeline.predict(texts)
    want = pipeline.predict_proba(texts)
    got = [list(row["probabilities"].asDict().values()) for row in rows]
    assert got == pytest.approx(want, abs=1e-5)
    assert list(rows[0]["probabilities"].asDict()) == list(pipeline.labels)


def test_a_column_gets_vectors(spark, model):
    from perron.integrations.corpora import TextMapper

    frame = spark.createDataFrame(list(enumerate(TEXTS)), "id long, text string")
    computed = column(TextMapper(model, "encode", threads=1))("text").alias("found")
    rows = sorted(frame.select("id", computed).select("id", "found.*").collect())
    got = [row["vector"] for row in rows]
    assert got == pytest.approx(perron.load(model).encode(TEXTS), abs=1e-5)
