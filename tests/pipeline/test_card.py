import pytest
from huggingface_hub import ModelCard
from perron_tests.models import small_config

from perron.hub import Score, model_card
from perron.models import ModelConfig, ModelSettings


def table(card):
    rows = [line for line in card.splitlines() if line.startswith("| ")]
    cells = [row.replace("\\|", "¦").strip("|").split("|") for row in rows]
    assert all(len(row) == 2 for row in cells)
    return {key.strip(): value.strip() for key, value in cells}


@pytest.mark.parametrize("kind", ["text", "document", "pair"])
def test_the_card_describes_the_model(kind):
    card = model_card(small_config(kind, "max", "cnn"), {"accuracy": "88.1 %"})
    assert card.startswith("---\nlibrary_name: perron\n")
    assert f"# A {kind} classifier with max pooling" in card
    facts = table(card)
    assert facts["encoder"] == "cnn"
    assert facts["classes"] == "bad, fair, good"
    assert facts["accuracy"] == "88.1 %"
    assert ("4 sentences" in facts["truncated to"]) == (kind == "document")
    call = 'predict(["..."], ["..."])' if kind == "pair" else 'predict(["..."])'
    assert f"model.{call}\n" in card


def test_special_characters_do_not_break_the_table():
    config = ModelConfig(
        settings=ModelSettings(), vocab_size=2, labels=("a|b", "c\nd", "---")
    )
    facts = table(model_card(config, {"x|y": "line\nbreak"}))
    assert facts["classes"] == "a¦b, c d, ---"
    assert facts["x¦y"] == "line break"


def test_the_metadata_of_the_card_has_the_scores():
    scores = [
        Score("sst", "dev", "accuracy", "accuracy", 0.87654, "87.7 %"),
        Score("sst", "dev", "log_loss", "log-loss", 0.31, "0.31"),
        Score("sst", "test", "accuracy", "accuracy", 0.85, "85.0 %"),
    ]
    card = model_card(small_config("text", "centrality", "bilstm"), {"seed": 3}, scores)
    facts = table(card)
    assert facts["dev accuracy"] == "87.7 %"
    assert facts["test accuracy"] == "85.0 %"
    assert facts["seed"] == "3"
    metadata = ModelCard(card).data
    assert facts["dev log-loss"] == "0.31"
    values = {
        (r.dataset_split, r.metric_type): r.metric_value for r in metadata.eval_results
    }
    assert values == {
        ("dev", "accuracy"): 0.8765,
        ("dev", "log_loss"): 0.31,
        ("test", "accuracy"): 0.85,
    }
    assert metadata.tags == ["perron", "centrality"]
    assert metadata.pipeline_tag == "text-classification"
