"""Label a Spark column with a trained model, by an iterator `pandas_udf`.

    python examples/demo.py      # trains a model
    python examples/spark_udf.py # needs pip install 'perron[spark]' and Java 17

Each of Spark's Python workers loads the model once, when its first batch comes.
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
    """Add two columns, count labels, print some rows."""
    if not Path(MODEL, "config.json").exists():
        sys.exit(f"no model in {MODEL}: examples/demo.py trains a model")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of Spark's workers
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("perron")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    mapper = TextMapper(MODEL, threads=1)  # a thread for each of Spark's cores

    @pandas_udf(mapper.spark_type)
    def labelled(batches: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
        yield from mapper.series(batches)

    rows = [(number, SENTENCES[number % 4]) for number in range(400)]
    texts = spark.createDataFrame(rows, "id long, text string").repartition(4)
    found = texts.select("*", labelled("text").alias("found")).select(
        "id", "text", "found.*"
    )
    found.groupBy("label").count().show()
    found.orderBy("id").show(4, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
