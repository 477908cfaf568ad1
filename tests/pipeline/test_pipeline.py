import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from perron_tests import environment
from perron_tests.errors import assert_mentions, mentions
from perron_tests.models import AGGREGATORS, LABELS
from perron_tests.pipelines import OTHERS, TEXTS, WORDS, arguments, small_pipeline

import perron
from perron import pipeline as module
from perron.errors import DataError
from perron.text.tokenizers import WordTokenizer


class TestEveryKind:
    def test_probabilities_sum_to_1(self, pipeline):
        probabilities = pipeline.predict_proba(*arguments(pipeline))
        assert probabilities.shape == (len(TEXTS), len(LABELS))
        assert probabilities.dtype == np.float32
        assert (probabilities > 0).all()
        np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)

    def test_results_are_in_the_order_of_the_texts(self, pipeline):
        inputs = arguments(pipeline)
        together = pipeline.predict_proba(*inputs)
        for row in range(len(TEXTS)):
            alone = pipeline.predict_proba(*([column[row]] for column in inputs))
            np.testing.assert_allclose(together[row : row + 1], alone, atol=1e-6)
        assert len(np.unique(together.round(4), axis=0)) > len(TEXTS) // 2

    @pytest.mark.parametrize("batch_size", [1, 3, 1000])
    def test_batch_size_does_not_matter(self, pipeline, batch_size):
        inputs = arguments(pipeline)
        np.testing.assert_allclose(
            pipeline.predict_proba(*inputs, batch_size=batch_size),
            pipeline.predict_proba(*inputs),
            atol=1e-6,
        )
        np.testing.assert_allclose(
            pipeline.encode(TEXTS, batch_size=batch_size),
            pipeline.encode(TEXTS),
            atol=1e-6,
        )

    def test_chunk_size_does_not_matter(self, pipeline, monkeypatch):
        inputs = arguments(pipeline)
        want = pipeline.predict_proba(*inputs)
        monkeypatch.setattr(module, "_CHUNK_SIZE", 3)
        got = pipeline.predict_proba(*inputs, batch_size=2)
        np.testing.assert_allclose(got, want, atol=1e-6)

    def test_the_most_probable_label_is_predicted(self, pipeline):
        inputs = arguments(pipeline)
        best = pipeline.predict_proba(*inputs).argmax(1)
        assert pipeline.predict(*inputs) == [LABELS[row] for row in best]
        assert pipeline.labels == LABELS

    def test_a_single_text_gives_a_single_result(self, pipeline):
        inputs = arguments(pipeline)
        one = [column[1] for column in inputs]
        assert pipeline.predict(*one) == pipeline.predict(*inputs)[1]
        probabilities = pipeline.predict_proba(*one)
        assert probabilities.shape == (len(LABELS),)
        np.testing.assert_allclose(
            probabilities, pipeline.predict_proba(*inputs)[1], atol=1e-6
        )
        vector = pipeline.encode(TEXTS[1])
        np.testing.assert_allclose(vector, pipeline.encode(TEXTS)[1], atol=1e-6)
        assert pipeline.predict_proba(*(["" for _ in inputs])).shape == (len(LABELS),)

    def test_no_texts_give_no_results(self, pipeline):
        empty = arguments(pipeline, [], [])
        assert pipeline.predict(*empty) == []
        assert pipeline.predict_proba(*empty).shape == (0, len(LABELS))
        assert len(pipeline.encode([])) == 0
        assert pipeline.encode([]).shape[1] == pipeline.encode(["a"]).shape[1]

    def test_the_vector_of_an_empty_text_is_zero(self, pipeline):
        vectors = pipeline.encode(["", "  ", "good", "\n"])
        assert (vectors[[0, 1, 3]] == 0).all()
        assert (vectors[2] != 0).any()
        assert vectors.dtype == np.float32

    def test_texts_may_be_a_tuple(self, pipeline):
        inputs = arguments(pipeline)
        assert pipeline.predict(*map(tuple, inputs)) == pipeline.predict(*inputs)

    def test_texts_are_truncated(self, pipeline):
        ten = "a good film the bad film it was not good"
        probabilities = pipeline.predict_proba(
            *arguments(pipeline, [ten, ten + " bad"], [ten + " bad", ten])
        )
        np.testing.assert_allclose(probabilities[0], probabilities[1], atol=1e-6)

    def test_dropout_is_always_off(self, pipeline):
        pipeline = small_pipeline(
            pipeline.processor.kind,
            embedding={"embedding_dim": 6, "dropout": 0.9},
            head={"hidden_dim": 5, "dropout": 0.9},
        )
        inputs = arguments(pipeline)
        want = pipeline.predict_proba(*inputs)
        pipeline.model.train()  # as if training continued
        assert np.array_equal(pipeline.predict_proba(*inputs), want)
        pipeline.model.train()
        assert np.array_equal(pipeline.encode(TEXTS), pipeline.encode(TEXTS))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_results_of_other_dtypes_are_float32(self, pipeline, dtype):
        inputs = arguments(pipeline)
        want = pipeline.predict_proba(*inputs), pipeline.encode(TEXTS)
        pipeline.model.to(dtype)
        got = pipeline.predict_proba(*inputs), pipeline.encode(TEXTS)
        assert got[0].dtype == got[1].dtype == np.float32
        # bfloat16 has 8 bits of precision, and the weights of the head are large.
        np.testing.assert_allclose(got[0], want[0], atol=0.1)
        np.testing.assert_allclose(got[1], want[1], atol=0.05)

    def test_a_saved_pipeline_gives_the_same_results(self, pipeline, tmp_path):
        pipeline.save_pretrained(tmp_path / "new" / "run")
        loaded = perron.load(tmp_path / "new" / "run")
        inputs = arguments(pipeline)
        assert np.array_equal(
            loaded.predict_proba(*inputs), pipeline.predict_proba(*inputs)
        )
        assert np.array_equal(loaded.encode(TEXTS), pipeline.encode(TEXTS))
        assert loaded.predict(*inputs) == pipeline.predict(*inputs)
        assert loaded.processor.max_words == 10
        assert loaded.processor.max_sentences == 4
        assert sorted(path.name for path in (tmp_path / "new" / "run").iterdir()) == [
            "README.md",
            "config.json",
            "model.safetensors",
            "tokenizer.json",
        ]


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("kind", ["text", "document", "pair"])
def test_every_aggregator_works_in_a_pipeline(kind, aggregator):
    pipeline = small_pipeline(kind, aggregator, "none")
    inputs = arguments(pipeline)
    np.testing.assert_allclose(
        pipeline.predict_proba(*inputs),
        pipeline.predict_proba(*inputs, batch_size=1),
        atol=1e-6,
    )


def test_labels_are_in_the_order_of_the_columns(monkeypatch):
    pipeline = small_pipeline("text")
    probabilities = np.array([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    monkeypatch.setattr(pipeline, "predict_proba", lambda *_: probabilities)
    assert pipeline.predict(["a", "b", "c"]) == ["fair", "bad", "good"]


def test_a_text_model_encodes_the_input_of_its_head():
    pipeline = small_pipeline("text")
    vectors = torch.from_numpy(pipeline.encode(TEXTS))
    probabilities = pipeline.model.head(vectors).softmax(-1)
    np.testing.assert_allclose(
        probabilities.detach().numpy(), pipeline.predict_proba(TEXTS), atol=1e-6
    )


def test_a_pair_model_encodes_both_sides_in_the_same_way():
    pipeline = small_pipeline("pair")
    p, h = map(torch.from_numpy, (pipeline.encode(TEXTS), pipeline.encode(OTHERS)))
    vector = torch.cat([p, h, (p - h).abs(), p * h], -1)
    probabilities = pipeline.model.head(vector).softmax(-1)
    np.testing.assert_allclose(
        probabilities.detach().numpy(), pipeline.predict_proba(TEXTS, OTHERS), atol=1e-6
    )
    assert pipeline.processor.kind == "pair"


def test_documents_are_split_into_sentences():
    pipeline = small_pipeline("document")
    one, two = pipeline.predict_proba(["good film it was", "good film. it was."])
    assert abs(one - two).max() > 1e-3
    many = "good. " * 4  # the maximum number of sentences
    probabilities = pipeline.predict_proba([many, many + "bad. bad."])
    np.testing.assert_allclose(probabilities[0], probabilities[1], atol=1e-6)


class TestErrors:
    @pytest.mark.parametrize(
        ("kind", "inputs", "parts"),
        [
            ("text", (["a"], ["b"]), ["single texts", "pairs"]),
            ("document", (["a"], ["b"]), ["single texts", "pairs"]),
            ("pair", (["a"],), ["pairs", "single texts"]),
            ("pair", ("a",), ["pairs", "single texts"]),
            ("text", ("a", "b"), ["pairs", "single texts"]),
            ("pair", (["a", "b"], ["a"]), ["pairs", "texts", 1, 2]),
            ("pair", (["a"], "b"), ["pairs", "list"]),
            ("pair", ("a", ["b"]), ["pairs", "string"]),
            ("text", (["a", "\ud800"],), ["text 1", "Unicode"]),
            ("pair", (["a"], ["\udfff"]), ["pair 0", "Unicode"]),
        ],
    )
    def test_texts_and_pairs_must_match_the_model(self, kind, inputs, parts):
        with pytest.raises(ValueError, match=mentions(*parts)):
            small_pipeline(kind).predict(*inputs)
        with pytest.raises(ValueError, match=mentions(*parts)):
            small_pipeline(kind).predict_proba(*inputs)

    def test_texts_to_explain_must_match_the_model(self):
        with pytest.raises(ValueError, match="pairs"):
            small_pipeline("pair").explain("good")
        with pytest.raises(ValueError, match="single texts"):
            small_pipeline("text").explain("good", "bad")
        with pytest.raises(ValueError, match=mentions("text 0", "Unicode")):
            small_pipeline("text").explain("\ud800")

    @pytest.mark.parametrize("batch_size", [0, -1])
    def test_batch_size_must_be_positive(self, batch_size):
        message = mentions("batch_size", batch_size)
        with pytest.raises(ValueError, match=message):
            small_pipeline("text").predict(["a"], batch_size=batch_size)
        with pytest.raises(ValueError, match=message):
            small_pipeline("text").encode(["a"], batch_size=batch_size)

    def test_texts_must_be_strings(self):
        """Runs in a new process, without the runtime type checker of the test run."""
        cases = {
            "text.predict([3])": ("text 0", "int"),
            "text.predict(['a', None])": ("text 1", "NoneType"),
            "text.encode([b'a'])": ("text 0", "bytes"),
            "text.explain(['a'])": ("text 0", "list"),
            "pair.predict(['a'], [['b']])": ("pair 0", "list"),
            "pair.explain('a', 3)": ("pair 0", "int"),
            "pair.predict(np.array(['a', 'b']), np.array(['b', 'a']))": ("accepted",),
        }
        code = (
            "import numpy as np\n"
            "from perron_tests.pipelines import small_pipeline\n"
            "text, pair = small_pipeline('text'), small_pipeline('pair')\n"
        ) + "".join(
            f"try:\n    {call}\n    print('accepted')\n"
            "except ValueError as error:\n    print(error)\n"
            for call in cases
        )
        run = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment(),
        )
        lines = run.stdout.splitlines()
        assert len(lines) == len(cases), run.stderr
        for line, parts in zip(lines, cases.values(), strict=True):
            assert_mentions(line, *parts)


class TestFolders:
    @pytest.fixture
    def folder(self, tmp_path):
        small_pipeline("text").save_pretrained(tmp_path)
        return tmp_path

    def test_a_missing_tokenizer_is_named(self, folder):
        (folder / "tokenizer.json").unlink()
        with pytest.raises(DataError, match=mentions(folder / "tokenizer.json")):
            perron.load(folder)

    @pytest.mark.parametrize("content", [b"", b"{}", b"\xff"])
    def test_a_corrupt_tokenizer_is_named(self, folder, content):
        (folder / "tokenizer.json").write_bytes(content)
        with pytest.raises(DataError, match=mentions(folder / "tokenizer.json")):
            perron.load(folder)

    @pytest.mark.parametrize("words", [WORDS[:-1], [*WORDS, "more"]])
    def test_the_tokenizer_of_another_model_is_an_error(self, folder, words):
        other = WordTokenizer.from_words(words, "lower")
        (folder / "tokenizer.json").write_text(other.to_json())
        message = mentions(folder / "tokenizer.json", len(words), 11)
        with pytest.raises(DataError, match=message):
            perron.load(folder)

    def test_a_missing_folder_is_named(self, tmp_path):
        with pytest.raises(DataError, match=mentions(tmp_path / "nowhere")):
            perron.load(tmp_path / "nowhere")

    @pytest.mark.parametrize("written", range(4))
    def test_a_folder_is_a_model_only_after_all_files_are_written(
        self, tmp_path, monkeypatch, written
    ):
        sync, calls = os.fsync, []

        def fail_later(file):
            calls.append(file)
            if len(calls) > written:
                raise OSError(28, "No space left on device")
            sync(file)

        monkeypatch.setattr(os, "fsync", fail_later)
        with pytest.raises(DataError, match="No space left"):
            small_pipeline("text").save_pretrained(tmp_path)
        assert len(list(tmp_path.iterdir())) == written
        with pytest.raises(DataError, match=mentions(tmp_path, "config.json")):
            perron.load(tmp_path)

    def test_a_file_in_place_of_the_folder_is_named(self, tmp_path):
        (tmp_path / "run").write_text("")
        with pytest.raises(DataError, match=mentions(tmp_path / "run")):
            small_pipeline("text").save_pretrained(tmp_path / "run")

    def test_a_saved_pipeline_ignores_case_as_before(self, tmp_path):
        pipeline = small_pipeline("text")
        pipeline.save_pretrained(tmp_path)
        small, large = perron.load(tmp_path).predict_proba(["good film", "GOOD Film"])
        np.testing.assert_allclose(small, large, atol=1e-6)

    def test_the_configuration_has_the_maximum_length(self, folder):
        content = json.loads((folder / "config.json").read_text())
        assert content["model"]["max_words"] == 10


class TestFiles:
    """Files of a pipeline, as in folders, in pickles and on the Hub."""

    def test_files_in_memory_equal_those_in_the_folder(self, pipeline, tmp_path):
        pipeline.save_pretrained(tmp_path)
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert pipeline.to_files() == files

    def test_a_pipeline_can_be_loaded_from_memory(self, pipeline):
        state = torch.get_rng_state()
        loaded = perron.Pipeline.from_files(pipeline.to_files(), "films")
        assert torch.equal(torch.get_rng_state(), state)
        inputs = arguments(pipeline)
        assert np.array_equal(
            loaded.predict_proba(*inputs), pipeline.predict_proba(*inputs)
        )
        assert loaded.name == "films"
        assert loaded.to_files() == pipeline.to_files()

    @pytest.mark.parametrize(
        "name", ["config.json", "model.safetensors", "tokenizer.json"]
    )
    def test_a_missing_file_is_named(self, name):
        files = small_pipeline("text").to_files()
        del files[name]
        with pytest.raises(DataError, match=f"^{name}: is missing"):
            perron.Pipeline.from_files(files)

    def test_a_missing_card_is_generated_on_saving(self):
        files = small_pipeline("text").to_files()
        card = files.pop("README.md")
        loaded = perron.Pipeline.from_files(files)
        assert loaded.card is None
        assert loaded.to_files()["README.md"] == card


def test_the_pipeline_is_imported_on_first_use():
    code = (
        "import sys, perron\n"
        "heavy = {'tokenizers', 'datasets', 'pydantic', 'pyarrow', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "perron.load\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "print('spacy' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    before, after, spacy = run.stdout.splitlines()
    assert before == "[]"
    assert after == str(["pydantic", "safetensors", "tokenizers"])
    assert spacy == "False"


def test_a_missing_extra_is_named():
    code = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "import perron\n"
        "try:\n    perron.load\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == (
        "perron.load requires tokenizers. Install it with: pip install 'perron[train]'"
    ), run.stderr
