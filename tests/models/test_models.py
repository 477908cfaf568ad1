import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.models import (
    AGGREGATORS,
    ENCODERS,
    KINDS,
    LABELS,
    batches,
    built_in,
    random_ids,
    small_config,
    small_model,
)
from torch.nn import functional as F

from perron.layers import ENCODERS as ALL_ENCODERS
from perron.models import (
    DocumentClassifier,
    PairClassifier,
    TextClassifier,
    build_model,
)
from perron.pooling import AGGREGATORS as ALL_AGGREGATORS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoder", ["none", "bilstm"])
@pytest.mark.parametrize("aggregator", AGGREGATORS)
class TestEveryModel:
    def test_flat_and_padded_texts_have_the_same_finite_logits(
        self, kind, aggregator, encoder
    ):
        model = small_model(kind, aggregator, encoder)
        flat, padded = batches(kind)
        got, want = model(**flat), model(**padded)
        assert got.logits.shape == (4, len(LABELS))
        assert got.vector.shape == (4, model.vector_dim)
        assert got.logits.isfinite().all()
        torch.testing.assert_close(got.logits, want.logits)
        torch.testing.assert_close(got.vector, want.vector)

    def test_gradients_are_finite_and_reach_every_weight(
        self, kind, aggregator, encoder
    ):
        model = small_model(kind, aggregator, encoder).train()
        flat, _ = batches(kind)
        F.cross_entropy(model(**flat).logits, torch.tensor([0, 1, 2, 0])).backward()
        for parameter in model.parameters():
            assert parameter.grad.isfinite().all()
        assert (model.embedding.vectors.weight.grad != 0).any()
        for name, parameter in model.encoder.named_parameters():
            # The first word has no previous state.
            unused = aggregator == "first" and name == "forward_layers.0.weight_hh_l0"
            assert (parameter.grad != 0).any() != unused


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoder", ENCODERS)
class TestEveryKind:
    def test_a_batch_of_empty_texts_is_classified(self, kind, encoder):
        model = small_model(kind, "centrality", encoder)
        empty = torch.zeros(0, dtype=torch.long)
        inputs = {"ids": empty, "lengths": [0, 0]}
        if kind == "document":
            inputs = {"ids": empty, "lengths": empty, "sentences": [0, 0]}
        if kind == "pair":
            inputs |= {"pair_ids": empty, "pair_lengths": [0, 0]}
        result = model(**inputs, need_edges=True)
        result.logits.sum().backward()
        assert (result.vector == 0).all()
        assert result.logits.isfinite().all()
        assert torch.equal(result.logits[0], result.logits[1])

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_other_dtypes_give_similar_logits(self, kind, encoder, dtype):
        model = small_model(kind, "centrality", encoder)
        flat, _ = batches(kind)
        want = model(**flat).logits
        got = model.to(dtype)(**flat).logits
        assert got.dtype == dtype
        # bfloat16 has 8 bits of precision.
        torch.testing.assert_close(got.float(), want, atol=0.05, rtol=0.05)

    def test_the_logits_of_a_text_do_not_depend_on_its_batch(self, kind, encoder):
        model = small_model(kind, "centrality", encoder)
        flat, _ = batches(kind)
        want = model(**flat).logits[-1:]
        alone = {"ids": flat["ids"][-6:], "lengths": [6]}
        if kind == "document":
            alone = {"ids": flat["ids"][-4:], "lengths": [4], "sentences": [1]}
        if kind == "pair":
            alone |= {"pair_ids": flat["pair_ids"][-5:], "pair_lengths": [5]}
        torch.testing.assert_close(model(**alone).logits, want)


def test_every_component_is_tested():
    def names(parts):
        return {part if isinstance(part, str) else part["name"] for part in parts}

    assert names(AGGREGATORS.values()) == built_in(ALL_AGGREGATORS)
    assert names(ENCODERS.values()) == built_in(ALL_ENCODERS)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_text_model_applies_its_layers_in_order(encoder):
    model = small_model("text", "centrality", encoder)
    words = model.embedding.vectors.weight[torch.tensor([3, 1, 4, 1, 5])]
    pooled = model.aggregator(model.encoder(words.unsqueeze(0)), need_edges=True)
    result = model(torch.tensor([3, 1, 4, 1, 5]), lengths=[5], need_edges=True)
    torch.testing.assert_close(result.vector, pooled.vector)
    torch.testing.assert_close(result.logits, model.head(pooled.vector))
    (output,) = result.pooled
    torch.testing.assert_close(output.weights, pooled.weights[0])
    torch.testing.assert_close(output.edges, pooled.edges)


@pytest.mark.parametrize("encoder", ["none", "bilstm"])
def test_a_pair_model_concatenates_the_pair_features(encoder):
    model = small_model("pair", "centrality", encoder)
    first, second = torch.tensor([3, 1, 4]), torch.tensor([1, 5])
    p, h = (
        model.aggregator(
            model.encoder(model.embedding.vectors.weight[ids].unsqueeze(0))
        ).vector[0]
        for ids in (first, second)
    )
    want = torch.cat([p, h, (p - h).abs(), p * h])
    result = model(first, second, lengths=[3], pair_lengths=[2])
    torch.testing.assert_close(result.vector[0], want)
    torch.testing.assert_close(result.logits, model.head(want.unsqueeze(0)))
    torch.testing.assert_close(result.pooled[0].vector[0], p)
    torch.testing.assert_close(result.pooled[1].vector[0], h)
    torch.testing.assert_close(model.pool(first, lengths=[3]).vector[0], p)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_document_model_pools_words_and_then_sentences(encoder):
    model = small_model("document", "centrality", encoder)
    lengths, sentences = [3, 5, 2, 1], [3, 0, 1]
    ids = random_ids(lengths)
    result = model(ids, lengths=lengths, sentences=sentences, need_edges=True)
    sentence_vectors = []
    for words in ids.split(lengths):
        states = model.encoder(model.embedding(words).unsqueeze(0))
        sentence_vectors.append(model.aggregator(states).vector[0])
    start = 0
    for row, count in enumerate(sentences):
        want = torch.zeros(model.vector_dim)
        if count:
            vectors = torch.stack(sentence_vectors[start : start + count])
            states = model.sentence_encoder(vectors.unsqueeze(0))
            want = model.sentence_aggregator(states).vector[0]
        torch.testing.assert_close(result.vector[row], want)
        start += count
    torch.testing.assert_close(result.logits, model.head(result.vector))
    words, documents = result.pooled
    assert words.edges.shape == (4, 5, 5)
    assert documents.edges.shape == (3, 3, 3)
    assert words.weights.shape == (11,)
    assert documents.weights.shape == (4,)


def test_each_level_of_a_document_can_have_its_own_settings():
    model = small_model(
        "document",
        "max",
        "bilstm",
        sentence_encoder={"name": "cnn", "kernel_sizes": [3], "num_filters": 4},
        sentence_aggregator={"name": "self-attention", "num_queries": 2},
    )
    kinds = [
        type(part).__name__
        for part in (
            model.encoder,
            model.aggregator,
            model.sentence_encoder,
            model.sentence_aggregator,
        )
    ]
    assert kinds == ["BiLSTMEncoder", "MaxPool", "CNNEncoder", "SelfAttentionPool"]
    assert model.vector_dim == 8
    flat, padded = batches("document")
    torch.testing.assert_close(model(**flat).logits, model(**padded).logits)


def test_levels_with_the_same_settings_do_not_share_weights():
    model = small_model("document", "centrality", "bilstm")
    shared = set(model.encoder.parameters()) & set(model.sentence_encoder.parameters())
    assert not shared
    pools = model.aggregator, model.sentence_aggregator
    assert not set(pools[0].parameters()) & set(pools[1].parameters())


def test_a_wrong_number_of_sentences_raises_an_error():
    model = small_model("document")
    with pytest.raises(ValueError, match=mentions("lengths", 3, 2)):
        model(torch.tensor([1, 2]), lengths=[1, 1], sentences=[3])


def test_edges_are_returned_only_on_request():
    for kind in KINDS:
        flat, _ = batches(kind)
        result = small_model(kind, "centrality")(**flat)
        assert [pooled.edges for pooled in result.pooled] == [None] * len(result.pooled)


def test_settings_of_the_embedding_are_applied():
    model = small_model(
        "text", embedding={"embedding_dim": 7, "freeze": True, "dropout": 0.3}
    )
    assert model.embedding.embedding_dim == 7
    assert model.embedding.dropout.p == 0.3
    assert not model.embedding.vectors.weight.requires_grad


def test_settings_of_the_head_are_applied():
    model = small_model("text", head={"hidden_dim": 9, "dropout": 0.4})
    dropout_1, hidden, _, dropout_2, output = model.head.layers
    assert (dropout_1.p, dropout_2.p) == (0.4, 0.4)
    assert (hidden.out_features, output.out_features) == (9, len(LABELS))


@pytest.mark.parametrize(
    ("kind", "built"),
    [
        ("text", TextClassifier),
        ("document", DocumentClassifier),
        ("pair", PairClassifier),
    ],
)
def test_kind_selects_the_class(kind, built):
    assert type(build_model(small_config(kind))) is built
    other = "pair" if kind == "text" else "text"
    with pytest.raises(ValueError, match=mentions("kind", f"'{kind}'", f"'{other}'")):
        built(small_config(other))


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("aggregator", ["mean", "centrality"])
def test_flat_and_padded_documents_have_the_same_logits(aggregator, encoder):
    model = small_model("document", aggregator, encoder)
    documents = [[3, 1], [], [4], [2, 2, 5]]  # number of words of each sentence
    lengths = [words for document in documents for words in document]
    ids = random_ids(lengths)
    sentences = [len(document) for document in documents]
    flat = model(ids, lengths=lengths, sentences=sentences)
    padded = torch.full((4, 5, 6), 7)
    mask = torch.zeros(4, 5, 6, dtype=torch.bool)
    sentence_ids = iter(ids.split(lengths))
    for row, document in enumerate(documents):
        for position, words in enumerate(document):
            padded[row, position, :words] = next(sentence_ids)
            mask[row, position, :words] = True
    result = model(padded, mask)
    torch.testing.assert_close(result.logits, flat.logits)
    torch.testing.assert_close(result.vector, flat.vector)
    assert torch.equal(model(padded, mask.long()).logits, result.logits)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_0_and_1_are_equivalent_to_bool(kind):
    model = small_model(kind, "centrality", "bilstm")
    _, padded = batches(kind)
    floats = {k: v.float() if "mask" in k else v for k, v in padded.items()}
    assert torch.equal(model(**floats).logits, model(**padded).logits)


def test_padded_documents_must_have_a_mask_and_nothing_else():
    model = small_model("document")
    ids = torch.zeros(2, 3, 4, dtype=torch.long)
    with pytest.raises(ValueError, match=mentions("(B, S, N)", "mask")):
        model(ids)
    with pytest.raises(ValueError, match=mentions((3, 4), "sentences")):
        model(ids[0], torch.ones(3, 4, dtype=torch.bool))


@pytest.mark.parametrize("kind", KINDS)
def test_states_need_a_frozen_pretrained_encoder(kind):
    model = small_model(kind, "mean", "none")
    flat, _ = batches(kind)
    inputs = {name: value for name, value in flat.items() if "ids" not in name}
    with pytest.raises(ValueError, match=mentions("ids", "states")):
        model(**inputs)
    states = {
        name.replace("ids", "states"): torch.zeros(len(value), 1, 4)
        for name, value in flat.items()
        if "ids" in name
    }
    with pytest.raises(ValueError, match=mentions("states", "frozen")):
        model(**inputs, **states)
