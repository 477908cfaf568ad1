"""Recipes with ``encoder = "hf:..."``, from texts to a saved model that is used."""

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
    made = tiny_table(write_texts(tmp_path / "texts.csv", rows=80))
    made["model"] = {
        "encoder": f"hf:{bert}",
        "aggregator": {"name": "centrality", "hidden_dim": 8},
        "head": {"hidden_dim": 8},
    }
    made["text"] = {"max_words": 30}
    made["training"] |= {"learning_rate": 5e-3, "max_epochs": 2}
    return made


@pytest.fixture
def weights_of(bert):
    return AutoModel.from_pretrained(bert).state_dict()


@pytest.fixture
def run(table, tmp_path):
    train(read_recipe(table), tmp_path / "run")
    return perron.load(tmp_path / "run")


class TestATunedModel:
    def test_it_does_not_need_the_pretrained_model_to_load(
        self, run, bert, tmp_path, monkeypatch
    ):
        texts = ["the film was lovely", "", "dull, dull"]
        hidden_dim = bert.rename(bert.with_name("elsewhere"))
        try:
            again = perron.load(tmp_path / "run")
            assert np.array_equal(again.predict_proba(texts), run.predict_proba(texts))
        finally:
            hidden_dim.rename(bert)

    def test_all_layers_are_trained(self, run, weights_of):
        layers = run.model.encoder.model.state_dict()
        changed = {name for name in layers if not layers[name].equal(weights_of[name])}
        assert {name.split(".")[2] for name in changed if "layer." in name} == {
            "0",
            "1",
        }
        vectors = weights_of["embeddings.word_embeddings.weight"]
        assert not run.model.embedding.vectors.weight.equal(vectors)

    def test_its_graph_has_words_not_subwords(self, run):
        text = "the film was unbelievable"
        (graph,) = run.explain(text).words
        assert graph.nodes == text.split()
        assert [text[begin:end] for begin, end in graph.places] == graph.nodes
        edges, weights = graph.edges(), np.array(graph.weights)
        assert edges.shape == (4, 4)
        np.testing.assert_allclose(edges.sum(0), 1, atol=1e-6)
        np.testing.assert_allclose(edges @ weights, weights, atol=1e-5)


def test_a_frozen_model_does_not_change(table, tmp_path, weights_of):
    table["model"]["encoder"] = {
        "name": "hf",
        "model": table["model"]["encoder"].removeprefix("hf:"),
        "freeze": True,
    }
    train(read_recipe(table), tmp_path / "run")
    model = perron.load(tmp_path / "run").model
    layers = model.encoder.model.state_dict()
    assert all(layers[name].equal(weights_of[name]) for name in layers)
    vectors = weights_of["embeddings.word_embeddings.weight"]
    assert model.embedding.vectors.weight.equal(vectors)


class TestMarksAsWords:
    """``encoder.keep_special_tokens``: ``[CLS]`` and ``[SEP]`` are pooled like any word."""

    TEXTS = ("the film was lovely", "", "dull, dull", "unbelievable " * 20)

    @pytest.fixture
    def marked(self, table):
        table["text"] = {"max_words": 40}  # all that the model has places for
        recipe = read_recipe(table, ["model.encoder.keep_special_tokens=true"])
        prepared = prepare(recipe)
        return perron.Pipeline(prepared.model, prepared.processor)

    def states(self, bert):
        """Return the states of each text, as `transformers` has them."""
        tokenizer = AutoTokenizer.from_pretrained(bert)
        model = AutoModel.from_pretrained(bert).eval()
        for text in self.TEXTS:
            inputs = tokenizer(
                text, truncation=True, max_length=40, return_tensors="pt"
            )
            with torch.no_grad():
                yield model(**inputs).last_hidden_state[0]

    @pytest.mark.parametrize("name", ["first", "mean", "max"])
    def test_the_states_of_all_tokens_are_pooled(
        self, table, bert, name, request
    ):
        pool = {
            "first": lambda states: states[0],
            "mean": lambda states: states.mean(0),
            "max": lambda states: states.amax(0),
        }[name]
        table["model"]["aggregator"] = name
        found = request.getfixturevalue("marked").encode(self.TEXTS)
        want = torch.stack([pool(states) for states in self.states(bert)])
        np.testing.assert_allclose(found, want.numpy(), atol=1e-5)

    def test_they_are_kept_in_a_saved_model(self, marked, tmp_path):
        marked.save_pretrained(tmp_path / "saved")
        again = perron.load(tmp_path / "saved")
        assert np.array_equal(
            again.predict_proba(self.TEXTS), marked.predict_proba(self.TEXTS)
        )

    def test_they_appear_in_the_graph_by_name(self, marked):
        (graph,) = marked.explain("a fine film").words
        assert graph.nodes == ["[CLS]", "a", "fine", "film", "[SEP]"]
        assert graph.places == [(0, 0), (0, 1), (2, 6), (7, 11), (11, 11)]
        np.testing.assert_allclose(graph.edges().sum(0), 1, atol=1e-6)

    def test_their_vectors_are_trained(self, table, tmp_path, weights_of):
        table["model"]["aggregator"] = "first"
        train(
            read_recipe(table, ["model.encoder.keep_special_tokens=true"]),
            tmp_path / "run",
        )
        model = perron.load(tmp_path / "run").model
        before = weights_of["embeddings.word_embeddings.weight"][2:4]
        assert (model.embedding.vectors.weight[2:4] != before).any(1).all()
        assert not model.encoder.before.numel()
        assert not model.encoder.after.numel()

    def test_each_sentence_of_a_document_has_them(self, table):
        table["model"] |= {"kind": "document", "sentence_encoder": "none"}
        prepared = prepare(
            read_recipe(table, ["model.encoder.keep_special_tokens=true"])
        )
        model = perron.Pipeline(prepared.model, prepared.processor)
        found = model.explain("a film. a day")
        assert [graph.nodes[-1] for graph in found.words] == ["[SEP]", "[SEP]"]
        assert found.sentences.nodes == ["a film.", "a day"]
        assert np.isfinite(model.predict_proba(["", "a film. a day"])).all()

    def test_max_words_must_fit_the_model(self, table):
        set_ = ["model.encoder.keep_special_tokens=true"]
        table["text"] = {"max_words": 41}
        with pytest.raises(SettingsError, match=mentions("text.max_words", 40)):
            prepare(read_recipe(table, set_))
        table["text"] = {"max_words": 2}
        with pytest.raises(SettingsError, match=mentions("text.max_words", 3)):
            prepare(read_recipe(table, set_))


class TestAModelInAPackage:
    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        """A package with this name that must not be imported."""
        monkeypatch.syspath_prepend(tmp_path)
        folder = tmp_path / "tiny_bert_package"
        folder.mkdir()
        (folder / "__init__.py").write_text("raise RuntimeError('was imported')")
        return folder

    @pytest.fixture
    def packed(self, table):
        table["model"]["encoder"] = "hf:package:tiny-bert-package"
        return table

    def refused(self, table, *parts):
        with pytest.raises(SettingsError, match=mentions(*parts)):
            prepare(read_recipe(table))

    @pytest.mark.parametrize("inside", [".", "model", "data/model"])
    def test_the_model_is_found(self, packed, package, inside, weights_of):
        write_tiny_bert(package / inside)
        # The settings of a pooling, beside the model's.
        (package / inside / "1_Pooling").mkdir()
        (package / inside / "1_Pooling" / "config.json").write_text('{"dim": 16}')
        prepared = prepare(read_recipe(packed))
        vectors = weights_of["embeddings.word_embeddings.weight"]
        assert prepared.model.embedding.vectors.weight.equal(vectors)
        assert prepared.recipe.model.encoder.model == "package:tiny-bert-package"
        assert package.name not in sys.modules

    def test_a_missing_package_is_an_error(self, packed):
        name = "hf:package:tiny-bert-package"
        self.refused(packed, "model.encoder", name, "pip install tiny-bert-package")
        for name in ("", "../elsewhere", "os/path"):
            packed["model"]["encoder"] = f"hf:package:{name}"
            self.refused(packed, "model.encoder", f"hf:package:{name}", "no package")

    def test_a_package_without_a_model_is_an_error(self, packed, package):
        (package / "config.json").write_text("[]")
        self.refused(packed, "hf:package:tiny-bert-package", "no model")
        (package / "config.json").write_text("{")
        self.refused(packed, "hf:package:tiny-bert-package", "no model")
        packed["model"]["encoder"] = "hf:package:this"  # one file, and it prints
        self.refused(packed, "hf:package:this", "no package")

    def test_a_package_with_several_models_is_an_error(self, packed, package):
        for name in ("large", "small"):
            write_tiny_bert(package / name)
        self.refused(packed, "hf:package:tiny-bert-package", "large", "small")


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
    curves = []
    for parts in (1, 3, 100):
        table["training"] |= {"accumulate": parts, "max_epochs": 2}
        folder = tmp_path / str(parts)
        train(read_recipe(table), folder)
        curves.append(perron.load(folder).predict_proba(["a lovely day", "sour"]))
    np.testing.assert_allclose(curves[1], curves[0], atol=1e-5)
    np.testing.assert_allclose(curves[2], curves[0], atol=1e-5)


class TestMistakes:
    def refused(self, table, *parts):
        with pytest.raises(SettingsError, match=mentions(*parts)):
            prepare(read_recipe(table))

    def test_a_missing_model_is_an_error(self, table, monkeypatch):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        table["model"]["encoder"] = "hf:/nowhere/at-all"
        self.refused(table, "model.encoder", "hf:/nowhere/at-all", "folder")
        table["model"]["encoder"] = "hf:./nowhere"
        self.refused(table, "model.encoder", "hf:./nowhere", "folder")
        table["model"]["encoder"] = "hf:nowhere"
        self.refused(table, "model.encoder", "hf:nowhere", "folder")

    def test_a_folder_without_a_model_is_an_error(self, table, tmp_path):
        table["model"]["encoder"] = f"hf:{tmp_path}"
        self.refused(table, tmp_path, "config.json")

    def test_too_many_words_are_an_error(self, table):
        table["text"] = {"max_words": 39}
        self.refused(table, 40, "text.max_words", 38)
        table["text"] = {"max_words": 38}
        prepare(read_recipe(table))

    def test_additional_word_vectors_are_an_error(self, table):
        table["vectors"] = ["glove.txt"]
        self.refused(table, "vectors", "hf", "--vectors")

    @pytest.mark.parametrize("key", ["min_count", "vector_words"])
    def test_vocabulary_settings_are_an_error(self, table, key):
        table["text"] = {key: 7}
        self.refused(table, f"text.{key}")

    def test_an_unsupported_sentence_encoder_is_an_error(self, table):
        table["model"]["kind"] = "document"
        self.refused(table, "sentence_encoder", "'bilstm'")
        table["model"]["sentence_encoder"] = table["model"]["encoder"]
        self.refused(table, "sentence_encoder", "words")

    def test_a_missing_tokenizer_is_an_error(self, table, bert, tmp_path):
        AutoModel.from_pretrained(bert).save_pretrained(tmp_path / "bare")
        table["model"]["encoder"] = f"hf:{tmp_path / 'bare'}"
        self.refused(table, tmp_path / "bare", "tokenizer")


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
    # Keys' biases shift all scores of a softmax alike: their gradient is nothing.
    assert all(name.endswith("attention.self.key.bias") for name in missing)
