import pytest
import torch
from perron_tests.errors import mentions

from perron.layers import ClassifierHead, WordEmbedding
from perron.layers.basic import FastDropout


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("shape", [(4,), (2, 3), (0,), (2, 0)])
def test_each_id_is_mapped_to_its_vector(dtype, shape):
    embedding = WordEmbedding(5, 3)
    ids = torch.randint(5, shape, dtype=dtype)
    vectors = embedding(ids)
    assert vectors.shape == (*shape, 3)
    assert torch.equal(vectors, embedding.vectors.weight[ids.long()])
    assert embedding.embedding_dim == 3


def test_pretrained_vectors_are_copied():
    embedding = WordEmbedding(5, 3)
    pretrained = torch.arange(15.0).reshape(5, 3)
    embedding.set_vectors(pretrained)
    assert torch.equal(embedding(torch.tensor([4, 1])), pretrained[[4, 1]])
    with torch.no_grad():
        embedding.vectors.weight.zero_()
    assert torch.equal(pretrained, torch.arange(15.0).reshape(5, 3))


def test_pretrained_vectors_may_have_another_dtype():
    embedding = WordEmbedding(5, 3)
    embedding.set_vectors(torch.ones(5, 3, dtype=torch.float16))
    assert torch.equal(embedding(torch.tensor([2])), torch.ones(1, 3))


@pytest.mark.parametrize("shape", [(5, 4), (4, 3), (3, 5)])
def test_vectors_of_the_wrong_shape_raise_an_error(shape):
    embedding = WordEmbedding(5, 3)
    before = embedding.vectors.weight.clone()
    with pytest.raises(ValueError, match=mentions((5, 3), tuple(shape))):
        embedding.set_vectors(torch.zeros(shape))
    assert torch.equal(embedding.vectors.weight, before)


@pytest.mark.parametrize("freeze", [True, False])
def test_loading_vectors_does_not_unfreeze_them(freeze):
    embedding = WordEmbedding(5, 3, freeze=freeze)
    embedding.set_vectors(torch.ones(5, 3))
    assert embedding.vectors.weight.requires_grad is not freeze
    assert embedding(torch.tensor([1])).requires_grad is not freeze


def test_dropout_acts_on_single_entries_and_only_in_training():
    embedding = WordEmbedding(5, 100, dropout=0.5)
    embedding.set_vectors(torch.ones(5, 100))
    ids = torch.zeros(50, dtype=torch.long)
    dropped = embedding(ids)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert 0.4 < (dropped == 0).float().mean() < 0.6
    assert ((dropped == 0).any(1) & (dropped != 0).any(1)).all()
    embedding.eval()
    assert torch.equal(embedding(ids), torch.ones(50, 100))


def test_head_equals_its_formula():
    head = ClassifierHead(3, num_classes=2, hidden_dim=4, dropout=0.5).eval()
    first, second = head.layers[1], head.layers[4]
    vector = torch.randn(5, 3)
    hidden = torch.tanh(vector @ first.weight.T + first.bias)
    want = hidden @ second.weight.T + second.bias
    torch.testing.assert_close(head(vector), want)


def test_head_applies_dropout_before_each_layer():
    head = ClassifierHead(3, num_classes=2, hidden_dim=400, dropout=0.5)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.fill_(1.0)
    layer_inputs = []
    for layer in (head.layers[1], head.layers[4]):
        layer.register_forward_hook(
            lambda _, inputs, output: layer_inputs.append(inputs[0])
        )
    head(torch.ones(400, 3))
    for inputs in layer_inputs:
        assert 0.4 < (inputs == 0).float().mean() < 0.6


def test_head_accepts_an_empty_batch():
    assert ClassifierHead(3, num_classes=2)(torch.zeros(0, 3)).shape == (0, 2)


def test_parameters_have_the_requested_device_and_dtype():
    factory = {"device": "meta", "dtype": torch.float64}
    for layer in (WordEmbedding(5, 3, **factory), ClassifierHead(3, 2, 4, **factory)):
        for parameter in layer.parameters():
            assert parameter.is_meta
            assert parameter.dtype == torch.float64


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda: WordEmbedding(0, 3), ["vocab_size", 1, 0]),
        (lambda: WordEmbedding(5, 0), ["embedding_dim", 1, 0]),
        (lambda: WordEmbedding(5, 3, dropout=1.0), ["dropout", "1.0"]),
        (lambda: ClassifierHead(3, 2, hidden_dim=0), ["hidden_dim", 1, 0]),
        (lambda: ClassifierHead(3, 2, dropout=-0.1), ["dropout", -0.1]),
    ],
)
def test_invalid_options_raise_an_error(build, parts):
    with pytest.raises(ValueError, match=mentions(*parts)):
        build()


class TestFastDropout:
    @pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
    def test_entries_are_dropped_and_scaled(self, p):
        x = torch.ones(500, 401, requires_grad=True)
        y = FastDropout(p)(x)
        kept = y != 0
        # Five standard deviations.
        assert kept.float().mean().item() == pytest.approx(1 - p, abs=0.006)
        assert y[kept].unique().tolist() == pytest.approx([1 / (1 - p)], rel=1e-4)
        for axis in (0, 1):  # no pattern in rows or columns
            share = kept.float().mean(axis)
            assert share.std().item() == pytest.approx(
                (p * (1 - p) / len(x)) ** 0.5, rel=0.25
            )
        y.sum().backward()
        assert x.grad.equal(y.detach())

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_the_dtype_is_kept(self, dtype):
        y = FastDropout(0.5)(torch.ones(3, 5, dtype=dtype))
        assert y.dtype == dtype
        assert set(y.flatten().tolist()) <= {0.0, 2.0}

    def test_masks_depend_on_the_seed_only(self):
        x = torch.ones(40, 7)
        torch.manual_seed(3)
        first, second = FastDropout(0.5)(x), FastDropout(0.5)(x)
        torch.manual_seed(3)
        assert FastDropout(0.5)(x).equal(first)
        assert not second.equal(first)

    @pytest.mark.parametrize("shape", [(0,), (1,), (2, 0), (3, 5)])
    def test_shapes(self, shape):
        assert FastDropout(0.3)(torch.ones(shape)).shape == shape

    def test_evaluation_and_extreme_probabilities(self):
        x = torch.ones(10, 10)
        assert FastDropout(0.5).eval()(x).equal(x)
        assert FastDropout(0.0)(x).equal(x)
        assert not FastDropout(1.0)(x).any()
