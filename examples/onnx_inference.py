"""Use a trained model where neither Perron nor torch is installed.

The model is exported to ONNX; then a process that knows `tokenizers`, `onnxruntime` and
`numpy` only classifies sentences and weighs their words, and its probabilities are
compared with the model's own. Needs the model that examples/demo.py trains, or another
one of single texts; takes seconds.

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
    """Return probabilities and weights of words; all that is needed is in the folder.

    This is the code to copy. In other languages it is the same few steps.
    """
    import numpy as np
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    told = json.loads((folder / "export.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = InferenceSession(folder / told["file"])

    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    words = [encoding.ids[: told["max_words"]] for encoding in encoded]
    lengths = np.array([len(ids) for ids in words], np.int64)
    ids = np.zeros((len(words), max(1, lengths.max())), np.int64)  # padding: any id
    for row, of_text in zip(ids, words, strict=True):
        row[: len(of_text)] = of_text

    wanted = ["probabilities", *(name for name in told["outputs"] if name == "weights")]
    found = session.run(wanted, {"ids": ids, "lengths": lengths})
    tokens = [encoding.tokens[: told["max_words"]] for encoding in encoded]
    answer = {"labels": told["labels"], "tokens": tokens}
    return answer | {name: x.tolist() for name, x in zip(wanted, found, strict=True)}


def show(found: dict[str, list]) -> None:
    """Print each text's label, and its weightiest words."""
    weights = found.get("weights", [[]] * len(found["tokens"]))
    for tokens, shares, of_weights in zip(
        found["tokens"], found["probabilities"], weights, strict=True
    ):
        best = max(range(len(shares)), key=shares.__getitem__)
        print(f"{found['labels'][best]} ({100 * shares[best]:.1f} %): ", end="")
        ranked = sorted(zip(of_weights, tokens, strict=False), reverse=True)[:3]
        print(*(f"{token} {100 * weight:.0f} %" for weight, token in ranked), sep=", ")


def main() -> None:
    """Export, classify in another process, compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="runs/demo", help="its folder")
    parser.add_argument("--out", type=Path, default=Path("runs/onnx"))
    parser.add_argument("--classify", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.classify:
        print(json.dumps(classify(options.out, TEXTS)))
        known = {"perron", "torch"} & set(sys.modules)
        assert not known, f"this process was to do without {known}"
        return

    import numpy as np

    import perron
    from perron.errors import PerronError
    from perron.integrations.export import export_onnx

    try:
        model = perron.load(options.model)
        made = export_onnx(model, options.out, replace=True)
    except PerronError as error:
        raise SystemExit(f"error: {error}; examples/demo.py trains a model") from None
    print(*(f"{path} ({path.stat().st_size:,} bytes)" for path in made.files), sep="\n")

    command = [sys.executable, __file__, "--classify", "--out", str(options.out)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    show(found)
    apart = np.abs(model.predict_proba(TEXTS) - np.array(found["probabilities"])).max()
    print(f"Without Perron and torch, probabilities differ by {apart:.0e} at most.")


if __name__ == "__main__":
    main()
