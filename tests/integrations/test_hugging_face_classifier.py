"""The model of `transformers`, with its Trainer and its pipelines."""

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


def test_it_pools_the_encoders_states_by_centrality(bert, tokenizer):
    model = classifier(bert, {"name": "centrality", "hidden_dim": 6, "num_heads": 2})
    batch = tokenizer(["the film", "fine"], padding=True, return_tensors="pt")
    with torch.no_grad():
        found = model(**batch, output_edges=True)
        states = model.encoder(**batch).last_hidden_state
        again = CentralityPool(16, hidden_dim=6, num_heads=2)
        again.load_state_dict(model.aggregator.state_dict())
        pooled = again(states, batch["attention_mask"].bool(), need_edges=True)
        want = model.classifier(pooled.vector)
    torch.testing.assert_close(found.logits, want)
    torch.testing.assert_close(found.weights, pooled.weights)
    torch.testing.assert_close(found.edges, pooled.edges)
    assert model(**batch).edges is None


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_padding_changes_nothing(bert, tokenizer, aggregator):
    model = classifier(bert, AGGREGATORS[aggregator])
    both = tokenizer(["the film was lovely", "dull"], padding=True, return_tensors="pt")
    alone = tokenizer(["dull"], return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(model(**both).logits[1:], model(**alone).logits)


def test_it_starts_from_the_pretrained_weights(bert):
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
def test_losses_are_those_of_other_sequence_classifiers(
    bert, tokenizer, labels, config
):
    batch = tokenizer(["the film", "fine"], padding=True, return_tensors="pt")
    ours = classifier(bert, **config)
    theirs = BertForSequenceClassification.from_pretrained(bert, **config).eval()
    with torch.no_grad():
        logits = ours(**batch).logits
        theirs.classifier.weight.zero_()
        # Their last layer now says what ours says, for both texts alike.
        theirs.classifier.bias.copy_(logits[0])
        alike = {name: tensor[:1].expand(2, -1) for name, tensor in batch.items()}
        want = theirs(**alike, labels=labels).loss
        got = ours(**alike, labels=labels).loss
    torch.testing.assert_close(got, want)


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
        compute_metrics=lambda told: {
            "accuracy": float((told.predictions.argmax(1) == told.label_ids).mean())
        },
    )
    trainer.train()
    trainer.save_model(str(folder / "saved"))
    return trainer, folder / "saved"


class TestATrainer:
    def test_it_learns(self, trained):
        trainer, _ = trained
        losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
        assert losses[-1] < 0.5 * losses[0]
        assert trainer.evaluate()["eval_accuracy"] > 0.9

    def test_predictions_are_logits_alone(self, trained):
        trainer, _ = trained
        told = trainer.predict(trainer.eval_dataset)
        assert isinstance(told.predictions, np.ndarray)
        assert told.predictions.shape == (8, 2)

    def test_weights_are_safetensors(self, trained):
        _, folder = trained
        names = {path.name for path in folder.iterdir()}
        assert "model.safetensors" in names
        assert not any(
            name.endswith((".bin", ".pkl"))
            for name in names
            - {
                "training_args.bin"  # the Trainer's own
            }
        )

    def test_pipelines_say_what_the_model_says(self, trained):
        trainer, folder = trained
        told = pipeline("text-classification", model=str(folder))(TEXTS)
        assert [row["label"] for row in told] == ["bad"] * 4 + ["good"] * 4
        rows = trainer.predict(trainer.eval_dataset).predictions
        shares = np.exp(rows) / np.exp(rows).sum(1, keepdims=True)
        scores = [row["score"] for row in told]
        np.testing.assert_allclose(scores, shares.max(1), atol=1e-5)

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
            want = trainer.model(**batch).logits[0]
        got = torch.tensor([float(part) for part in run.stdout.split()])
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_a_saved_model_is_loaded_as_it_was(bert, tokenizer, aggregator, tmp_path):
    model = classifier(bert, AGGREGATORS[aggregator], **NAMES)
    model.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    batch = tokenizer(["the film was lovely"], return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(again(**batch).logits, model(**batch).logits)
    assert again.config.id2label == NAMES["id2label"]


def test_a_configuration_has_a_format_version(bert, tmp_path):
    classifier(bert).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    assert content["format_version"] == current_version("transformers")
    assert not hasattr(CentralityConfig.from_pretrained(tmp_path), "format_version")
    path.write_text(json.dumps(content | {"format_version": 99}))
    with pytest.raises(DataError, match="newer version of Perron"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path)


def test_memory_can_be_spared_by_checkpoints_of_gradients(bert, tokenizer):
    model = classifier(bert).train()
    model.gradient_checkpointing_enable()
    batch = tokenizer(["the film", "fine"], padding=True, return_tensors="pt")
    model(**batch, labels=torch.tensor([0, 1])).loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize(
    ("aggregator", "problem"),
    [
        ("middle", "aggregator.*'middle'"),
        ({"name": "centrality", "hedas": 2}, r"aggregator\.centrality\.hedas"),
        ({"name": "centrality", "num_heads": 0}, r"aggregator\.centrality: heads .*0"),
    ],
)
def test_an_aggregator_that_is_none_is_refused(aggregator, problem):
    with pytest.raises(ValueError, match=problem):
        CentralityConfig(aggregator=aggregator)


def test_a_configuration_without_an_encoder_is_refused():
    with pytest.raises(ValueError, match="encoder"):
        CentralityForSequenceClassification(CentralityConfig())
