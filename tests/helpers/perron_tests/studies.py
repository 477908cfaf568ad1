"""Records of runs that nobody ran."""

import numpy as np

from perron.experiments.records import Record


def record(variant, point, seed, dev, right, graphs=(), tested="a"):
    right = np.asarray(right, bool)
    return Record(
        command=f"perron train x --set {variant}",
        variant=variant,
        point=point,
        seed=seed,
        commit="abc",
        data="0123",
        dev={"accuracy": dev},
        test={"accuracy": float(right.mean())},
        epochs=3,
        best_epoch=1,
        parameters=1234,
        epoch_seconds=1.5,
        graphs=graphs,
        test_digest=tested,
        correct=np.packbits(right).tobytes().hex(),
        test_size=len(right),
    )
