"""Label a Spark column with a trained model, using an iterator `pandas_udf`.

    python examples/demo.py      # trains a model
    python examples/spark_udf.py # needs pip install 'perron[spark]' and Java 17

Each of Spark's Python workers loads the model once, at its first batch.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

from perron.integrations.corpora import TextMapper

MODEL = "runs/demo"
SENTENCES = [
    "a gorgeous, witty, seductive movie .",
    "what a waste of a good cast .",
    "it is not a bad film , and not a dull one .",
    "two hours that felt like four .",
]


def main() -> None:
    """Add two columns, count the labels, and print some rows."""
    if not Path(MODEL, "config.json").exists():
        sys.exit(f"error: {MODEL} contains no model. Run examples/demo.py first.")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for Spark's workers
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("perron")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    mapper = TextMapper(MODEL, threads=1)  # Spark runs one worker per core

    @pandas_udf(mapper.spark_type)
    def predict(batches: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
        yield from mapper.map_series(batches)

    rows = [(number, SENTENCES[number % 4]) for number in range(400)]
    texts = spark.createDataFrame(rows, "id long, text string").repartition(4)
    labeled = texts.select("*", predict("text").alias("prediction")).select(
        "id", "text", "prediction.*"
    )
    labeled.groupBy("label").count().show()
    labeled.orderBy("id").show(4, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
