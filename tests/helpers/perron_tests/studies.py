"""Fabricated records of runs."""

import numpy as np

from perron.experiments.records import RunRecord


def record(variant, point, seed, dev, correct, graphs=(), test_digest="a"):
    correct = np.asarray(correct, bool)
    return RunRecord(
        command=f"perron train x --set {variant}",
        variant=variant,
        point=point,
        seed=seed,
        commit="abc",
        data="0123",
        dev={"accuracy": dev},
        test={"accuracy": float(correct.mean())},
        epochs=3,
        best_epoch=1,
        parameters=1234,
        epoch_seconds=1.5,
        graphs=graphs,
        test_digest=test_digest,
        correct=np.packbits(correct).tobytes().hex(),
        test_size=len(correct),
    )
