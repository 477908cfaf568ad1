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
    def test_flat_and_padded_texts_get_the_same_finite_logits(
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
        for name, part in model.encoder.named_parameters():
            # No word comes before the first one.
            unused = aggregator == "first" and name == "onward.0.weight_hh_l0"
            assert (part.grad != 0).any() != unused


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoder", ENCODERS)
class TestEveryKind:
    def test_a_batch_without_a_word_is_classified(self, kind, encoder):
        model = small_model(kind, "centrality", encoder)
        none = torch.zeros(0, dtype=torch.long)
        inputs = {"ids": none, "lengths": [0, 0]}
        if kind == "document":
            inputs = {"ids": none, "lengths": none, "sentences": [0, 0]}
        if kind == "pair":
            inputs |= {"pair_ids": none, "pair_lengths": [0, 0]}
        result = model(**inputs, need_edges=True)
        result.logits.sum().backward()
        assert (result.vector == 0).all()
        assert result.logits.isfinite().all()
        assert torch.equal(result.logits[0], result.logits[1])

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_other_precisions(self, kind, encoder, dtype):
        model = small_model(kind, "centrality", encoder)
        flat, _ = batches(kind)
        want = model(**flat).logits
        got = model.to(dtype)(**flat).logits
        assert got.dtype == dtype
        # bfloat16 keeps eight bits.
        torch.testing.assert_close(got.float(), want, atol=0.05, rtol=0.05)

    def test_a_text_does_not_depend_on_its_batch(self, kind, encoder):
        model = small_model(kind, "centrality", encoder)
        flat, _ = batches(kind)
        want = model(**flat).logits[-1:]
        alone = {"ids": flat["ids"][-6:], "lengths": [6]}
        if kind == "document":
            alone = {"ids": flat["ids"][-4:], "lengths": [4], "sentences": [1]}
        if kind == "pair":
            alone |= {"pair_ids": flat["pair_ids"][-5:], "pair_lengths": [5]}
        torch.testing.assert_close(model(**alone).logits, want)


def test_every_part_is_tested_here():
    def names(parts):
        return {part if isinstance(part, str) else part["name"] for part in parts}

    assert names(AGGREGATORS.values()) == built_in(ALL_AGGREGATORS)
    assert names(ENCODERS.values()) == built_in(ALL_ENCODERS)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_text_model_is_its_parts_in_a_row(encoder):
    model = small_model("text", "centrality", encoder)
    words = model.embedding.vectors.weight[torch.tensor([3, 1, 4, 1, 5])]
    pooled = model.aggregator(model.encoder(words.unsqueeze(0)), need_edges=True)
    result = model(torch.tensor([3, 1, 4, 1, 5]), lengths=[5], need_edges=True)
    torch.testing.assert_close(result.vector, pooled.vector)
    torch.testing.assert_close(result.logits, model.head(pooled.vector))
    (found,) = result.pooled
    torch.testing.assert_close(found.weights, pooled.weights[0])
    torch.testing.assert_close(found.edges, pooled.edges)


@pytest.mark.parametrize("encoder", ["none", "bilstm"])
def test_pair_model_by_hand(encoder):
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
def test_document_model_sentence_by_sentence(encoder):
    model = small_model("document", "centrality", encoder)
    lengths, sentences = [3, 5, 2, 1], [3, 0, 1]
    ids = random_ids(lengths)
    result = model(ids, lengths=lengths, sentences=sentences, need_edges=True)
    of_sentence = []
    for words in ids.split(lengths):
        states = model.encoder(model.embedding(words).unsqueeze(0))
        of_sentence.append(model.aggregator(states).vector[0])
    start = 0
    for row, count in enumerate(sentences):
        want = torch.zeros(model.vector_dim)
        if count:
            inside = torch.stack(of_sentence[start : start + count]).unsqueeze(0)
            states = model.sentence_encoder(inside)
            want = model.sentence_aggregator(states).vector[0]
        torch.testing.assert_close(result.vector[row], want)
        start += count
    torch.testing.assert_close(result.logits, model.head(result.vector))
    words, documents = result.pooled
    assert words.edges.shape == (4, 5, 5)
    assert documents.edges.shape == (3, 3, 3)
    assert words.weights.shape == (11,)
    assert documents.weights.shape == (4,)


def test_each_level_of_a_document_has_its_own_parts():
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


def test_levels_that_are_alike_still_have_weights_of_their_own():
    model = small_model("document", "centrality", "bilstm")
    shared = set(model.encoder.parameters()) & set(model.sentence_encoder.parameters())
    assert not shared
    pools = model.aggregator, model.sentence_aggregator
    assert not set(pools[0].parameters()) & set(pools[1].parameters())


def test_sentences_that_do_not_fit_are_refused():
    model = small_model("document")
    with pytest.raises(ValueError, match=mentions("lengths", 3, 2)):
        model(torch.tensor([1, 2]), lengths=[1, 1], sentences=[3])


def test_edges_come_only_when_asked_for():
    for kind in KINDS:
        flat, _ = batches(kind)
        result = small_model(kind, "centrality")(**flat)
        assert [pooled.edges for pooled in result.pooled] == [None] * len(result.pooled)


def test_embedding_takes_its_settings():
    model = small_model(
        "text", embedding={"embedding_dim": 7, "freeze": True, "dropout": 0.3}
    )
    assert model.embedding.embedding_dim == 7
    assert model.embedding.dropout.p == 0.3
    assert not model.embedding.vectors.weight.requires_grad


def test_head_takes_its_settings():
    model = small_model("text", head={"hidden_dim": 9, "dropout": 0.4})
    drop, hidden, _, again, last = model.head.layers
    assert (drop.p, again.p) == (0.4, 0.4)
    assert (hidden.out_features, last.out_features) == (9, len(LABELS))


@pytest.mark.parametrize(
    ("kind", "built"),
    [
        ("text", TextClassifier),
        ("document", DocumentClassifier),
        ("pair", PairClassifier),
    ],
)
def test_kind_chooses_the_class(kind, built):
    assert type(build_model(small_config(kind))) is built
    other = "pair" if kind == "text" else "text"
    with pytest.raises(ValueError, match=mentions("kind", f"'{kind}'", f"'{other}'")):
        built(small_config(other))


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("aggregator", ["mean", "centrality"])
def test_documents_padded_twice_are_what_they_are_flat(aggregator, encoder):
    model = small_model("document", aggregator, encoder)
    documents = [[3, 1], [], [4], [2, 2, 5]]  # words of each sentence
    lengths = [words for document in documents for words in document]
    ids = random_ids(lengths)
    sentences = [len(document) for document in documents]
    flat = model(ids, lengths=lengths, sentences=sentences)
    padded = torch.full((4, 5, 6), 7)
    mask = torch.zeros(4, 5, 6, dtype=torch.bool)
    pieces = iter(ids.split(lengths))
    for row, document in enumerate(documents):
        for place, words in enumerate(document):
            padded[row, place, :words] = next(pieces)
            mask[row, place, :words] = True
    twice = model(padded, mask)
    torch.testing.assert_close(twice.logits, flat.logits)
    torch.testing.assert_close(twice.vector, flat.vector)
    assert torch.equal(model(padded, mask.long()).logits, twice.logits)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_0_and_1_mean_the_same_as_bool(kind):
    model = small_model(kind, "centrality", "bilstm")
    _, full = batches(kind)
    numbers = {k: v.float() if "mask" in k else v for k, v in full.items()}
    assert torch.equal(model(**numbers).logits, model(**full).logits)


def test_documents_padded_twice_want_a_mask_and_nothing_else():
    model = small_model("document")
    ids = torch.zeros(2, 3, 4, dtype=torch.long)
    with pytest.raises(ValueError, match=mentions("(B, S, N)", "mask")):
        model(ids)
    with pytest.raises(ValueError, match=mentions((3, 4), "sentences")):
        model(ids[0], torch.ones(3, 4, dtype=torch.bool))
