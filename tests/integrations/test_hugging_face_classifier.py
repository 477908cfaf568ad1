"""The sequence classifier for `transformers`, with `Trainer` and `pipeline`."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from perron_tests.models import AGGREGATORS
from perron_tests.tiny_bert import write_tiny_bert
from perron_tests.training import BAD, GOOD
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

from perron.errors import DataError
from perron.integrations.hugging_face import (
    CentralityConfig,
    CentralityForSequenceClassification,
)
from perron.migrations import current_version
from perron.pooling import CentralityPool

NAMES = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
TEXTS = [f"the film was {word}" for word in [*BAD, *GOOD]]
LABELS = [0] * len(BAD) + [1] * len(GOOD)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return str(write_tiny_bert(tmp_path_factory.mktemp("hf") / "tiny-bert"))


@pytest.fixture(scope="module")
def tokenizer(bert):
    return AutoTokenizer.from_pretrained(bert)


def classifier(bert, aggregator="centrality", **config):
    torch.manual_seed(1)
    model = CentralityForSequenceClassification.from_encoder(bert, aggregator, **config)
    return model.eval()


def test_the_encoder_states_are_pooled_by_centrality(bert, tokenizer):
    model = classifier(bert, {"name": "centrality", "hidden_dim": 6, "num_heads": 2})
    batch = tokenizer(["the film", "fine"], padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**batch, output_edges=True)
        states = model.encoder(**batch).last_hidden_state
        pool = CentralityPool(16, hidden_dim=6, num_heads=2)
        pool.load_state_dict(model.aggregator.state_dict())
        pooled = pool(states, batch["attention_mask"].bool(), need_edges=True)
        logits = model.classifier(pooled.vector)
    torch.testing.assert_close(output.logits, logits)
    torch.testing.assert_close(output.weights, pooled.weights)
    torch.testing.assert_close(output.edges, pooled.edges)
    assert model(**batch).edges is None


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_padding_does_not_change_the_logits(bert, tokenizer, aggregator):
    model = classifier(bert, AGGREGATORS[aggregator])
    batch = tokenizer(
        ["the film was lovely", "dull"], padding=True, return_tensors="pt"
    )
    alone = tokenizer(["dull"], return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits[1:], model(**alone).logits)


def test_from_encoder_loads_the_pretrained_weights(bert):
    model = classifier(bert)
    pretrained = BertForSequenceClassification.from_pretrained(bert).bert.state_dict()
    for name, weight in model.encoder.state_dict().items():
        assert weight.equal(pretrained[name])
    assert not any("pooler" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize(
    ("labels", "config"),
    [
        (torch.tensor([1, 0]), {"num_labels": 3}),
        (torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), {"num_labels": 3}),
        (torch.tensor([0.3, -2.0]), {"num_labels": 1}),
        (
            torch.tensor([[0.3, 1.0], [2.0, 0.0]]),
            {"num_labels": 2, "problem_type": "regression"},
        ),
    ],
)
def test_losses_match_those_of_bert(bert, tokenizer, labels, config):
    batch = tokenizer(["the film", "fine"], padding=True, return_tensors="pt")
    ours = classifier(bert, **config)
    theirs = BertForSequenceClassification.from_pretrained(bert, **config).eval()
    with torch.no_grad():
        logits = ours(**batch).logits
        theirs.classifier.weight.zero_()
        # BERT's last layer now returns our logits of the first text for any input.
        theirs.classifier.bias.copy_(logits[0])
        same = {name: tensor[:1].expand(2, -1) for name, tensor in batch.items()}
        expected = theirs(**same, labels=labels).loss
        actual = ours(**same, labels=labels).loss
    torch.testing.assert_close(actual, expected)


@pytest.fixture(scope="module")
def trained(bert, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainer")
    rows = [
        dict(tokenizer(text), label=label)
        for text, label in zip(TEXTS * 6, LABELS * 6, strict=True)
    ]
    model = classifier(bert, **NAMES)
    trainer = Trainer(
        model,
        TrainingArguments(
            str(folder / "runs"),
            max_steps=100,
            learning_rate=5e-3,
            per_device_train_batch_size=8,
            logging_steps=10,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=rows,
        eval_dataset=rows[:8],
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        compute_metrics=lambda outputs: {
            "accuracy": (outputs.predictions.argmax(1) == outputs.label_ids).mean()
        },
    )
    trainer.train()
    trainer.save_model(str(folder / "saved"))
    return trainer, folder / "saved"


class TestTrainer:
    def test_training_reduces_the_loss(self, trained):
        trainer, _ = trained
        losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
        assert losses[-1] < 0.5 * losses[0]
        assert trainer.evaluate()["eval_accuracy"] > 0.9

    def test_predictions_contain_only_logits(self, trained):
        trainer, _ = trained
        output = trainer.predict(trainer.eval_dataset)
        assert isinstance(output.predictions, np.ndarray)
        assert output.predictions.shape == (8, 2)

    def test_weights_are_saved_as_safetensors(self, trained):
        _, folder = trained
        names = {path.name for path in folder.iterdir()}
        assert "model.safetensors" in names
        others = names - {"training_args.bin"}  # written by the Trainer
        assert not any(name.endswith((".bin", ".pkl")) for name in others)

    def test_a_pipeline_returns_the_predictions_of_the_model(self, trained):
        trainer, folder = trained
        rows = pipeline("text-classification", model=str(folder))(TEXTS)
        assert [row["label"] for row in rows] == ["bad"] * 4 + ["good"] * 4
        exp = np.exp(trainer.predict(trainer.eval_dataset).predictions)
        probabilities = exp / exp.sum(1, keepdims=True)
        scores = [row["score"] for row in rows]
        np.testing.assert_allclose(scores, probabilities.max(1), atol=1e-5)

    def test_a_new_process_loads_the_same_model(self, trained):
        trainer, folder = trained
        code = (
            "import sys, torch\n"
            "import perron.integrations.hugging_face\n"
            "from transformers import AutoModelForSequenceClassification as Auto\n"
            "from transformers import AutoTokenizer\n"
            "model = Auto.from_pretrained(sys.argv[1]).eval()\n"
            "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])\n"
            "batch = tokenizer(['a dull film'], return_tensors='pt')\n"
            "with torch.no_grad(): print(*model(**batch).logits[0].tolist())\n"
        )
        run = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        tokenizer = trainer.processing_class
        trainer.model.eval()
        with torch.no_grad():
            batch = tokenizer(["a dull film"], return_tensors="pt")
            expected = trainer.model(**batch).logits[0]
        actual = torch.tensor([float(logit) for logit in run.stdout.split()])
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_a_loaded_model_has_the_same_logits(bert, tokenizer, aggregator, tmp_path):
    model = classifier(bert, AGGREGATORS[aggregator], **NAMES)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    batch = tokenizer(["the film was lovely"], return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits)
    assert loaded.config.id2label == NAMES["id2label"]


def test_a_configuration_has_a_format_version(bert, tmp_path):
    classifier(bert).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    assert content["format_version"] == current_version("transformers")
    assert not hasattr(CentralityConfig.from_pretrained(tmp_path), "format_version")
    path.write_text(json.dumps(content | {"format_version": 99}))
    with pytest.raises(DataError, match="newer version of Perron"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path)


def test_gradient_checkpointing_computes_all_gradients(bert, tokenizer):
    model = classifier(bert).train()
    model.gradient_checkpointing_enable()
    batch = tokenizer(["the film", "fine"], padding=True, return_tensors="pt")
    model(**batch, labels=torch.tensor([0, 1])).loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize(
    ("aggregator", "problem"),
    [
        ("middle", "aggregator.*'middle'"),
        ({"name": "centrality", "hedas": 2}, r"aggregator\.hedas"),
        (
            {"name": "centrality", "num_heads": 0},
            r"aggregator: num_heads .*0",
        ),
    ],
)
def test_an_invalid_aggregator_is_refused(aggregator, problem):
    with pytest.raises(ValueError, match=problem):
        CentralityConfig(aggregator=aggregator)


def test_a_configuration_without_an_encoder_is_refused():
    with pytest.raises(ValueError, match="encoder"):
        CentralityForSequenceClassification(CentralityConfig())
