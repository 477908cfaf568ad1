"""Run a trained model where neither Perron nor torch is installed.

Exports the model to ONNX. A second process, which imports only `tokenizers`,
`onnxruntime` and `numpy`, then classifies sentences and computes their token weights,
and its probabilities are compared with the model's own. Needs the model trained by
examples/demo.py, or another model for single texts. Takes seconds.

    python examples/onnx_inference.py [MODEL] [--out runs/onnx]
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

TEXTS = [
    "A gorgeous, witty, seductive movie.",
    "It's not a bad film, but it's too long and too slow.",
    "dull",
    "",
]


def classify(folder: Path, texts: list[str]) -> dict[str, list]:
    """Return labels, tokens, probabilities and token weights.

    This is the function to copy. It needs nothing but the exported folder, and the
    steps are the same in other languages.
    """
    import numpy as np
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    config = json.loads((folder / "export.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = InferenceSession(folder / config["file"])

    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    token_ids = [encoding.ids[: config["max_words"]] for encoding in encodings]
    lengths = np.array([len(row) for row in token_ids], np.int64)
    ids = np.zeros((len(texts), max(1, lengths.max())), np.int64)  # any id pads
    for padded, row in zip(ids, token_ids, strict=True):
        padded[: len(row)] = row

    names = ["probabilities"]
    if "weights" in config["outputs"]:  # max pooling has none
        names.append("weights")
    outputs = session.run(names, {"ids": ids, "lengths": lengths})
    tokens = [encoding.tokens[: config["max_words"]] for encoding in encodings]
    return {
        "labels": config["labels"],
        "tokens": tokens,
        **{name: array.tolist() for name, array in zip(names, outputs, strict=True)},
    }


def show(result: dict[str, list]) -> None:
    """Print the label of each text and the three tokens with the largest weights."""
    all_weights = result.get("weights", [[]] * len(result["tokens"]))
    for tokens, probabilities, weights in zip(
        result["tokens"], result["probabilities"], all_weights, strict=True
    ):
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        print(f"{result['labels'][best]} ({100 * probabilities[best]:.1f} %): ", end="")
        # Padding has weights but no tokens.
        ranked = sorted(zip(weights, tokens, strict=False), reverse=True)[:3]
        print(*(f"{token} {100 * weight:.0f} %" for weight, token in ranked), sep=", ")


def main() -> None:
    """Export the model, classify in another process, compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="runs/demo", help="model folder")
    parser.add_argument("--out", type=Path, default=Path("runs/onnx"))
    parser.add_argument("--classify", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.classify:
        print(json.dumps(classify(options.out, TEXTS)))
        imported = {"perron", "torch"} & set(sys.modules)
        assert not imported, f"this process must not import {imported}"
        return

    import numpy as np

    import perron
    from perron.errors import PerronError
    from perron.integrations.export import export_onnx

    try:
        model = perron.load(options.model)
        exported = export_onnx(model, options.out, replace=True)
    except PerronError as error:
        raise SystemExit(
            f"error: {error}\nTo train a model, run examples/demo.py."
        ) from None
    for path in exported.files:
        print(f"{path} ({path.stat().st_size:,} bytes)")

    command = [sys.executable, __file__, "--classify", "--out", str(options.out)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(run.stdout)
    show(result)
    probabilities = np.array(result["probabilities"])
    difference = np.abs(model.predict_proba(TEXTS) - probabilities).max()
    print(
        f"Without Perron and torch, probabilities differ by at most {difference:.0e}."
    )


if __name__ == "__main__":
    main()
