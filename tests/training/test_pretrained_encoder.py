"""Recipes with ``encoder = "hf:..."``: training, saving and loading."""

import sys

import numpy as np
import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.tiny_bert import write_tiny_bert
from perron_tests.training import tiny_table, write_texts
from transformers import AutoModel, AutoTokenizer

import perron
from perron.errors import SettingsError
from perron.training import read_recipe, train
from perron.training.loop import make_optimizer
from perron.training.prepare import prepare


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return write_tiny_bert(tmp_path_factory.mktemp("hf") / "tiny-bert")


@pytest.fixture
def table(bert, tmp_path):
    settings = tiny_table(write_texts(tmp_path / "texts.csv", rows=80))
    settings["model"] = {
        "encoder": f"hf:{bert}",
        "aggregator": {"name": "centrality", "hidden_dim": 8},
        "head": {"hidden_dim": 8},
    }
    settings["text"] = {"max_words": 30}
    settings["training"] |= {"learning_rate": 5e-3, "max_epochs": 2}
    return settings


@pytest.fixture
def bert_weights(bert):
    return AutoModel.from_pretrained(bert).state_dict()


@pytest.fixture
def run(table, tmp_path):
    train(read_recipe(table), tmp_path / "run")
    return perron.load(tmp_path / "run")


class TestFineTunedModel:
    def test_it_does_not_need_the_pretrained_model_to_load(
        self, run, bert, tmp_path, monkeypatch
    ):
        texts = ["the film was lovely", "", "dull, dull"]
        moved = bert.rename(bert.with_name("elsewhere"))
        try:
            again = perron.load(tmp_path / "run")
            assert np.array_equal(again.predict_proba(texts), run.predict_proba(texts))
        finally:
            moved.rename(bert)

    def test_all_layers_are_trained(self, run, bert_weights):
        layers = run.model.encoder.model.state_dict()
        changed = {
            name for name in layers if not layers[name].equal(bert_weights[name])
        }
        assert {name.split(".")[2] for name in changed if "layer." in name} == {
            "0",
            "1",
        }
        vectors = bert_weights["embeddings.word_embeddings.weight"]
        assert not run.model.embedding.vectors.weight.equal(vectors)

    def test_its_graph_has_words_not_subwords(self, run):
        text = "the film was unbelievable"
        (graph,) = run.explain(text).words
        assert graph.nodes == text.split()
        assert [text[begin:end] for begin, end in graph.spans] == graph.nodes
        edges, weights = graph.edges(), np.array(graph.weights)
        assert edges.shape == (4, 4)
        np.testing.assert_allclose(edges.sum(0), 1, atol=1e-6)
        np.testing.assert_allclose(edges @ weights, weights, atol=1e-5)


def test_a_frozen_model_does_not_change(table, tmp_path, bert_weights):
    table["model"]["encoder"] = {
        "name": "hf",
        "model": table["model"]["encoder"].removeprefix("hf:"),
        "freeze": True,
    }
    train(read_recipe(table), tmp_path / "run")
    model = perron.load(tmp_path / "run").model
    layers = model.encoder.model.state_dict()
    assert all(layers[name].equal(bert_weights[name]) for name in layers)
    vectors = bert_weights["embeddings.word_embeddings.weight"]
    assert model.embedding.vectors.weight.equal(vectors)


class TestKeepSpecialTokens:
    """With ``keep_special_tokens``, ``[CLS]`` and ``[SEP]`` are pooled like words."""

    TEXTS = ("the film was lovely", "", "dull, dull", "unbelievable " * 20)

    @pytest.fixture
    def pipeline(self, table):
        table["text"] = {"max_words": 40}  # the maximum of the model
        recipe = read_recipe(table, ["model.encoder.keep_special_tokens=true"])
        prepared = prepare(recipe)
        return perron.Pipeline(prepared.model, prepared.processor)

    def states(self, bert):
        """Yield the states of each text, computed by `transformers`."""
        tokenizer = AutoTokenizer.from_pretrained(bert)
        model = AutoModel.from_pretrained(bert).eval()
        for text in self.TEXTS:
            inputs = tokenizer(
                text, truncation=True, max_length=40, return_tensors="pt"
            )
            with torch.no_grad():
                yield model(**inputs).last_hidden_state[0]

    @pytest.mark.parametrize("name", ["first", "mean", "max"])
    def test_the_states_of_all_tokens_are_pooled(self, table, bert, name, request):
        pool = {
            "first": lambda states: states[0],
            "mean": lambda states: states.mean(0),
            "max": lambda states: states.amax(0),
        }[name]
        table["model"]["aggregator"] = name
        vectors = request.getfixturevalue("pipeline").encode(self.TEXTS)
        expected = torch.stack([pool(states) for states in self.states(bert)])
        np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-5)

    def test_they_are_kept_in_a_saved_model(self, pipeline, tmp_path):
        pipeline.save_pretrained(tmp_path / "saved")
        loaded = perron.load(tmp_path / "saved")
        assert np.array_equal(
            loaded.predict_proba(self.TEXTS), pipeline.predict_proba(self.TEXTS)
        )

    def test_they_appear_in_the_graph_by_name(self, pipeline):
        (graph,) = pipeline.explain("a fine film").words
        assert graph.nodes == ["[CLS]", "a", "fine", "film", "[SEP]"]
        assert graph.spans == [(0, 0), (0, 1), (2, 6), (7, 11), (11, 11)]
        np.testing.assert_allclose(graph.edges().sum(0), 1, atol=1e-6)

    def test_their_vectors_are_trained(self, table, tmp_path, bert_weights):
        table["model"]["aggregator"] = "first"
        train(
            read_recipe(table, ["model.encoder.keep_special_tokens=true"]),
            tmp_path / "run",
        )
        model = perron.load(tmp_path / "run").model
        before = bert_weights["embeddings.word_embeddings.weight"][2:4]
        assert (model.embedding.vectors.weight[2:4] != before).any(1).all()
        assert not model.encoder.before.numel()
        assert not model.encoder.after.numel()

    def test_each_sentence_of_a_document_has_them(self, table):
        table["model"] |= {"kind": "document", "sentence_encoder": "none"}
        prepared = prepare(
            read_recipe(table, ["model.encoder.keep_special_tokens=true"])
        )
        model = perron.Pipeline(prepared.model, prepared.processor)
        explanation = model.explain("a film. a day")
        assert [graph.nodes[-1] for graph in explanation.words] == ["[SEP]", "[SEP]"]
        assert explanation.sentences.nodes == ["a film.", "a day"]
        assert np.isfinite(model.predict_proba(["", "a film. a day"])).all()

    def test_max_words_must_fit_the_model(self, table):
        overrides = ["model.encoder.keep_special_tokens=true"]
        table["text"] = {"max_words": 41}
        with pytest.raises(SettingsError, match=mentions("text.max_words", 40)):
            prepare(read_recipe(table, overrides))
        table["text"] = {"max_words": 2}
        with pytest.raises(SettingsError, match=mentions("text.max_words", 3)):
            prepare(read_recipe(table, overrides))


class TestModelInPackage:
    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        """Create an empty package that must not be imported."""
        monkeypatch.syspath_prepend(tmp_path)
        folder = tmp_path / "tiny_bert_package"
        folder.mkdir()
        (folder / "__init__.py").write_text("raise RuntimeError('was imported')")
        return folder

    @pytest.fixture
    def package_table(self, table):
        table["model"]["encoder"] = "hf:package:tiny-bert-package"
        return table

    def check_error(self, table, *parts):
        with pytest.raises(SettingsError, match=mentions(*parts)):
            prepare(read_recipe(table))

    @pytest.mark.parametrize("inside", [".", "model", "data/model"])
    def test_the_model_is_found(self, package_table, package, inside, bert_weights):
        write_tiny_bert(package / inside)
        # Another config.json next to that of the model.
        (package / inside / "1_Pooling").mkdir()
        (package / inside / "1_Pooling" / "config.json").write_text('{"dim": 16}')
        prepared = prepare(read_recipe(package_table))
        vectors = bert_weights["embeddings.word_embeddings.weight"]
        assert prepared.model.embedding.vectors.weight.equal(vectors)
        assert prepared.recipe.model.encoder.model == "package:tiny-bert-package"
        assert package.name not in sys.modules

    def test_a_missing_package_is_an_error(self, package_table):
        name = "hf:package:tiny-bert-package"
        self.check_error(
            package_table, "model.encoder", name, "pip install tiny-bert-package"
        )
        for name in ("", "../elsewhere", "os/path"):
            package_table["model"]["encoder"] = f"hf:package:{name}"
            self.check_error(
                package_table, "model.encoder", f"hf:package:{name}", "not installed"
            )

    def test_a_package_without_a_model_is_an_error(self, package_table, package):
        (package / "config.json").write_text("[]")
        self.check_error(package_table, "hf:package:tiny-bert-package", "no model")
        (package / "config.json").write_text("{")
        self.check_error(package_table, "hf:package:tiny-bert-package", "no model")
        package_table["model"]["encoder"] = "hf:package:this"  # one file, and it prints
        self.check_error(package_table, "hf:package:this", "not installed")

    def test_a_package_with_several_models_is_an_error(self, package_table, package):
        for name in ("large", "small"):
            write_tiny_bert(package / name)
        self.check_error(
            package_table, "hf:package:tiny-bert-package", "large", "small"
        )


def test_pairs_and_documents_are_supported(table, tmp_path):
    table["model"] |= {"kind": "document", "sentence_encoder": "none"}
    prepared = prepare(read_recipe(table))
    logits = prepared.model(**prepared.dev.batch([0, 1]).inputs).logits
    assert logits.shape == (2, 2)
    rows = [f"{row % 2},film,the film" for row in range(40)]
    (tmp_path / "pairs.csv").write_text("\n".join(["label,text,other", *rows]))
    data = {"format": "csv", "train": str(tmp_path / "pairs.csv"), "text_pair": "other"}
    del table["model"]["sentence_encoder"]
    table |= {"data": data, "model": table["model"] | {"kind": "pair"}}
    prepared = prepare(read_recipe(table))
    assert prepared.model(**prepared.dev.batch([0, 1]).inputs).logits.shape == (2, 2)


def test_the_encoder_may_have_its_own_learning_rate(table):
    table["training"] |= {"learning_rate": 1e-2, "encoder_learning_rate": 1e-3}
    prepared = prepare(read_recipe(table))
    optimizer = make_optimizer(prepared.model, prepared.recipe.training)
    rates = {
        id(weight): group["rate"]
        for group in optimizer.param_groups
        for weight in group["params"]
    }
    for name, weight in prepared.model.named_parameters():
        expected = 0.1 if name.startswith(("encoder.", "embedding.")) else 1.0
        assert rates[id(weight)] == pytest.approx(expected), name


def test_micro_batches_do_not_change_the_result(table, tmp_path):
    del table["model"], table["text"]
    table["model"] = {"encoder": "none", "embedding": {"embedding_dim": 6}}
    results = []
    for parts in (1, 3, 100):
        table["training"] |= {"num_micro_batches": parts, "max_epochs": 2}
        folder = tmp_path / str(parts)
        train(read_recipe(table), folder)
        results.append(perron.load(folder).predict_proba(["a lovely day", "sour"]))
    np.testing.assert_allclose(results[1], results[0], atol=1e-5)
    np.testing.assert_allclose(results[2], results[0], atol=1e-5)


class TestErrors:
    def check_error(self, table, *parts):
        with pytest.raises(SettingsError, match=mentions(*parts)):
            prepare(read_recipe(table))

    def test_a_missing_model_is_an_error(self, table, monkeypatch):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        table["model"]["encoder"] = "hf:/nowhere/at-all"
        self.check_error(table, "model.encoder", "hf:/nowhere/at-all", "folder")
        table["model"]["encoder"] = "hf:./nowhere"
        self.check_error(table, "model.encoder", "hf:./nowhere", "folder")
        table["model"]["encoder"] = "hf:nowhere"
        self.check_error(table, "model.encoder", "hf:nowhere", "folder")

    def test_a_folder_without_a_model_is_an_error(self, table, tmp_path):
        table["model"]["encoder"] = f"hf:{tmp_path}"
        self.check_error(table, tmp_path, "config.json")

    def test_too_many_words_are_an_error(self, table):
        table["text"] = {"max_words": 39}
        self.check_error(table, 40, "text.max_words", 38)
        table["text"] = {"max_words": 38}
        prepare(read_recipe(table))

    def test_additional_word_vectors_are_an_error(self, table):
        table["vectors"] = ["glove.txt"]
        self.check_error(table, "vectors", "hf", "--vectors")

    @pytest.mark.parametrize("key", ["min_count", "vector_words"])
    def test_vocabulary_settings_are_an_error(self, table, key):
        table["text"] = {key: 7}
        self.check_error(table, f"text.{key}")

    def test_an_unsupported_sentence_encoder_is_an_error(self, table):
        table["model"]["kind"] = "document"
        self.check_error(table, "sentence_encoder", "'bilstm'")
        table["model"]["sentence_encoder"] = table["model"]["encoder"]
        self.check_error(table, "sentence_encoder", "words")

    def test_a_missing_tokenizer_is_an_error(self, table, bert, tmp_path):
        AutoModel.from_pretrained(bert).save_pretrained(tmp_path / "bare")
        table["model"]["encoder"] = f"hf:{tmp_path / 'bare'}"
        self.check_error(table, tmp_path / "bare", "tokenizer")


def test_gradients_reach_the_subword_embeddings(table):
    prepared = prepare(read_recipe(table))
    batch = prepared.train.batch([0, 1, 2])
    logits = prepared.model(**batch.inputs).logits
    torch.nn.functional.cross_entropy(logits, batch.labels).backward()
    missing = [
        name
        for name, weight in prepared.model.named_parameters()
        if weight.grad is None or not weight.grad.abs().sum() > 0
    ]
    # The biases of keys shift all scores of a softmax equally: their gradient is zero.
    assert all(name.endswith("attention.self.key.bias") for name in missing)
