"""Options of `CentralityPool`: source_init_gain, edge_dropout and value."""

import math

import numpy as np
import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.graphs import DTYPE
from perron_tests.models import AGGREGATORS, batches, small_config, small_model
from perron_tests.reference import stationary_by_eig
from perron_tests.triton import with_triton
from torch.autograd import gradcheck

from perron import CentralityPool, PowerIteration
from perron.errors import SettingsError
from perron.kernels import use
from perron.models import ModelConfig, build_model, load_model
from perron.models.config import read_aggregator
from perron.registry import settings_from

D = 3
KERNELS = with_triton({"packed": "numba", "ragged": "numba", "padded": "torch"})
GRAPHS = ("mlp", "bilinear", "query")
MASK = torch.tensor(
    [[1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
    dtype=torch.bool,
)


def draws(make, seed=5):
    """Return the parameters of a new module, and the next random number."""
    torch.manual_seed(seed)
    parameters = {name: p.clone() for name, p in make().state_dict().items()}
    return parameters, torch.rand(1)


def reset(pool):
    pool.reset_parameters()
    return pool


class TestSourceInitGain:
    @pytest.mark.parametrize("connectivity", ["mlp", "bilinear", "low_rank"])
    @pytest.mark.parametrize("when", ["created", "reset"])
    def test_it_scales_only_the_source_layer(self, connectivity, when):
        def make(gain):
            pool = CentralityPool(D, connectivity=connectivity, source_init_gain=gain)
            return pool if when == "created" else reset(pool)

        plain, after = draws(lambda: make(1.0))
        scaled, after_scaled = draws(lambda: make(2.5))
        assert torch.equal(after, after_scaled)
        for name, values in plain.items():
            factor = 2.5 if name == "connectivity.source.weight" else 1
            torch.testing.assert_close(scaled[name], factor * values)

    def test_a_reset_does_not_scale_twice(self):
        pool = CentralityPool(D, source_init_gain=3.0)
        once, _ = draws(lambda: reset(pool))
        again, _ = draws(lambda: reset(pool))
        assert all(torch.equal(once[name], again[name]) for name in once)

    def test_the_default_gives_the_same_weights_as_plain_layers(self):
        parameters, after = draws(lambda: CentralityPool(D, hidden_dim=4, num_heads=2))
        torch.manual_seed(5)
        for _ in range(2):  # by the constructors of the layers, then by the reset
            target = torch.nn.Linear(D, 8)
            source = torch.nn.Linear(D, 8, bias=False)
        score = torch.empty(2, 4).uniform_(-0.5, 0.5)
        assert torch.equal(parameters["connectivity.target.weight"], target.weight)
        assert torch.equal(parameters["connectivity.target.bias"], target.bias)
        assert torch.equal(parameters["connectivity.source.weight"], source.weight)
        assert torch.equal(parameters["connectivity.score"], score)
        assert torch.equal(after, torch.rand(1))

    @pytest.mark.parametrize("connectivity", ["mlp", "bilinear", "low_rank"])
    def test_a_larger_gain_makes_the_initial_columns_differ_more(self, connectivity):
        states = torch.randn(8, 10, D)

        def column_std(gain):
            torch.manual_seed(0)
            pool = CentralityPool(D, connectivity=connectivity, source_init_gain=gain)
            return pool(states, need_edges=True).edges.std(-1).mean()

        assert column_std(1e-6) < 1e-6
        assert column_std(2.0) > 1.2 * column_std(1.0) > 1e-4  # tanh saturates


class TestEdgeDropout:
    @pytest.mark.parametrize("connectivity", GRAPHS)
    def test_dropped_edges_are_scaled_and_columns_sum_to_one(self, connectivity):
        pool = CentralityPool(
            D, num_heads=2, connectivity=connectivity, edge_dropout=0.3
        ).double()
        states = torch.randn(20, 12, D, dtype=torch.float64)
        full = pool.eval()(states, need_edges=True).head_edges
        edges = pool.train()(states, need_edges=True).head_edges
        ratio = edges / full
        ratio = ratio / ratio.amax(-2, keepdim=True)  # relative to edges not dropped
        dropped = ratio < 0.5
        torch.testing.assert_close(ratio[~dropped], torch.ones_like(ratio[~dropped]))
        torch.testing.assert_close(
            ratio[dropped], torch.full_like(ratio[dropped], 0.01)
        )
        torch.testing.assert_close(edges.sum(-2), torch.ones_like(edges.sum(-2)))
        # 5760 edges: five standard deviations are 0.03.
        assert dropped.double().mean().item() == pytest.approx(0.3, abs=0.03)
        assert not torch.equal(dropped[:, 0], dropped[:, 1])  # heads are independent

    def test_the_weights_are_those_of_the_graph_after_dropout(self):
        pool = CentralityPool(D, num_heads=2, edge_dropout=0.5).double().train()
        states = torch.randn(4, 6, D, dtype=torch.float64)
        pooled = pool(states, MASK, need_edges=True)
        for text, words in enumerate(MASK[:3]):
            for head in range(2):
                edges = pooled.head_edges[text, head][words][:, words].detach().numpy()
                weights = pooled.head_weights[text, head][words].detach().numpy()
                want = stationary_by_eig(edges)
                np.testing.assert_allclose(weights, want, atol=1e-12)
                vector = pooled.vector[text, head * D :][:D].detach().numpy()
                want = weights @ states[text][words].numpy()
                np.testing.assert_allclose(vector, want, atol=1e-12)

    @pytest.mark.parametrize("layout", sorted({*KERNELS} - {"ragged"}))
    def test_padding_has_no_edges_weights_or_gradients(self, layout):
        pool = CentralityPool(D, edge_dropout=0.5, value="incoming").train()
        states = torch.randn(4, 6, D)
        states = states.masked_fill(~MASK.unsqueeze(-1), torch.nan).requires_grad_()
        with use(KERNELS[layout]):
            pooled = pool(states, MASK, need_edges=True)
        pooled.vector.square().sum().backward()
        pairs = MASK.unsqueeze(-1) & MASK.unsqueeze(-2)
        assert (pooled.edges[~pairs] == 0).all()
        assert (pooled.edges[pairs] > 0).all()
        assert (pooled.weights[~MASK] == 0).all()
        assert (pooled.vector[3] == 0).all()
        assert (states.grad[~MASK] == 0).all()
        for grad in (states.grad, *(p.grad for p in pool.parameters())):
            assert grad.isfinite().all()

    @pytest.mark.parametrize("value", ["states", "incoming"])
    def test_gradients_with_edge_dropout(self, value):
        pool = CentralityPool(D, 4, num_heads=2, edge_dropout=0.4, value=value)
        pool = pool.double().train()
        states = torch.randn(4, 6, D, dtype=torch.float64, requires_grad=True)

        def pooled(states, *_):
            torch.manual_seed(1)  # drop the same edges every time
            return pool(states, MASK).vector

        assert gradcheck(pooled, (states, *pool.parameters()), fast_mode=True)

    @pytest.mark.parametrize(("p", "train"), [(0.0, True), (0.9, False)])
    def test_inactive_dropout_does_not_use_random_numbers(self, p, train):
        pool = CentralityPool(D, edge_dropout=p).train(train)
        plain = CentralityPool(D)
        plain.load_state_dict(pool.state_dict())
        states = torch.randn(4, 6, D)
        before = torch.get_rng_state()
        vector = pool(states, MASK).vector
        assert torch.equal(before, torch.get_rng_state())
        assert torch.equal(vector, plain(states, MASK).vector)

    def test_ragged_and_padded_texts_drop_the_same_edges(self):
        pool = CentralityPool(D, edge_dropout=0.5).train()
        lengths = torch.tensor([6, 0, 1, 4])
        mask = torch.arange(6) < lengths.unsqueeze(1)
        states = torch.randn(4, 6, D)
        torch.manual_seed(2)
        padded = pool(states, mask).vector
        torch.manual_seed(2)
        ragged = pool(states[mask], lengths=lengths).vector
        torch.testing.assert_close(ragged, padded)


def incoming_by_hand(pool, states, edges, norm):
    """Return the vector of one text and one head, computed word by word."""
    own, bias, source = (
        p.detach().numpy()
        for p in (pool.flow.own.weight, pool.flow.own.bias, pool.flow.source.weight)
    )
    alpha = stationary_by_eig(edges)
    outer = alpha if norm == "sum" else alpha / np.linalg.norm(alpha)
    vector = np.zeros(states.shape[1])
    for i, word in enumerate(states):
        mean = np.zeros_like(word)
        for j, other in enumerate(states):
            mean += edges[i, j] * alpha[j] * other / alpha[i]
        vector += outer[i] * np.tanh(own @ word + bias + source @ mean)
    return vector


class TestIncomingValue:
    @pytest.mark.parametrize("layout", KERNELS)
    @pytest.mark.parametrize("norm", ["sum", "l2"])
    @pytest.mark.parametrize("connectivity", GRAPHS)
    def test_the_vector_agrees_with_the_formula(self, connectivity, norm, layout):
        pool = CentralityPool(
            D, num_heads=2, connectivity=connectivity, norm=norm, value="incoming"
        ).to(DTYPE)
        states = 3 * torch.randn(4, 6, D, dtype=DTYPE)
        with use(KERNELS[layout]):
            pooled = pool(states, MASK, need_edges=True)
        vectors = pooled.vector
        if layout == "ragged":
            vectors = pool(states[MASK], lengths=MASK.sum(1)).vector
        assert vectors.shape == (4, pool.out_dim) == (4, 2 * D)
        assert (vectors[3] == 0).all()
        for text, words in enumerate(MASK[:3]):
            for head in range(2):
                edges = pooled.head_edges[text, head][words][:, words].detach().numpy()
                want = incoming_by_hand(pool, states[text][words].numpy(), edges, norm)
                vector = vectors[text, head * D :][:D].detach().numpy()
                atol = {torch.float64: 1e-12, torch.float32: 1e-5}[DTYPE]
                np.testing.assert_allclose(vector, want, atol=atol)

    def test_weights_and_edges_do_not_depend_on_value(self):
        pool = CentralityPool(D, num_heads=2, value="incoming")
        plain = CentralityPool(D, num_heads=2)
        plain.connectivity.load_state_dict(pool.connectivity.state_dict())
        states = torch.randn(4, 6, D)
        got, want = (p(states, MASK, need_edges=True) for p in (pool, plain))
        assert torch.equal(got.head_weights, want.head_weights)
        assert torch.equal(got.weights, want.weights)
        assert torch.equal(got.head_edges, want.head_edges)

    def test_a_single_word_is_its_own_source(self):
        pool = CentralityPool(D, value="incoming")
        word = torch.randn(5, 1, D)
        want = (pool.flow.own(word) + pool.flow.source(word)).tanh()
        torch.testing.assert_close(pool(word).vector, want[:, 0])

    def test_in_self_attention_the_source_of_every_word_is_the_mean(self):
        pool = CentralityPool(D, connectivity="query", value="incoming")
        states = torch.randn(4, 6, D)
        weights = pool(states).weights.unsqueeze(-1)
        mean = (weights * states).sum(1, keepdim=True)
        values = (pool.flow.own(states) + pool.flow.source(mean)).tanh()
        torch.testing.assert_close(pool(states).vector, (weights * values).sum(1))

    @pytest.mark.parametrize("solver", ["direct", PowerIteration(max_iter=1)])
    def test_sources_are_a_mean_even_before_convergence(self, solver):
        """A coordinate that is the same in all words is the same in their sources."""
        pool = CentralityPool(D, solver=solver, value="incoming")
        with torch.no_grad():
            pool.flow.own.weight.zero_()
            pool.flow.own.bias.zero_()
            pool.flow.source.weight.copy_(torch.eye(D))
        states = 5 * torch.randn(4, 6, D)
        states[:, :, 0] = 0.7
        got = pool(states).vector[:, 0]
        torch.testing.assert_close(got, torch.full((4,), math.tanh(0.7)))

    @pytest.mark.parametrize("connectivity", ["mlp", "bilinear"])
    @pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
    def test_words_with_almost_no_weight_are_stable(self, connectivity, scale):
        pool = CentralityPool(D, connectivity=connectivity, value="incoming")
        states = torch.randn(8, 12, D)
        with torch.no_grad():
            for parameter in pool.connectivity.parameters():
                parameter.mul_(scale)
        states.requires_grad_()
        pooled = pool(states)
        pooled.vector.sum().backward()
        assert pooled.vector.abs().max() <= 1 + 1e-6  # a mean of tanh
        for grad in (states.grad, *(p.grad for p in pool.parameters())):
            assert grad.isfinite().all()

    def test_reset_parameters_reinitializes_its_layers(self):
        pool = CentralityPool(D, value="incoming")
        before = [p.clone() for p in pool.flow.parameters()]
        pool.reset_parameters()
        assert not any(map(torch.equal, before, pool.flow.parameters()))

    def test_initial_weights_of_the_graph_do_not_depend_on_value(self):
        plain, _ = draws(lambda: CentralityPool(D))
        incoming, _ = draws(lambda: CentralityPool(D, value="incoming"))
        assert all(torch.equal(incoming[name], plain[name]) for name in plain)


INVALID = [
    ({"source_init_gain": 0.0}, ["source_init_gain", 0.0]),
    ({"source_init_gain": -1.0}, ["source_init_gain", -1.0]),
    ({"source_init_gain": math.inf}, ["source_init_gain", "inf"]),
    ({"source_init_gain": math.nan}, ["source_init_gain", "nan"]),
    ({"edge_dropout": 1.0}, ["edge_dropout", 1.0]),
    ({"edge_dropout": -0.1}, ["edge_dropout", -0.1]),
    ({"edge_dropout": math.nan}, ["edge_dropout", "nan"]),
    ({"max_relative_distance": -1}, ["max_relative_distance", 0, -1]),
    ({"num_heads": 0}, ["num_heads", 1, 0]),
    (
        {"connectivity": "query", "source_init_gain": 2.0},
        ["source_init_gain", 1, "'query'"],
    ),
    ({"connectivity": "low_rank", "edge_dropout": 0.1}, ["edge_dropout", "'low_rank'"]),
    ({"connectivity": "low_rank", "value": "incoming"}, ["value", "'low_rank'"]),
    (
        {"connectivity": "low_rank", "max_relative_distance": 2},
        ["max_relative_distance", 0, "'low_rank'"],
    ),
    (
        {"connectivity": {"name": "mlp", "hidden_dim": 3}},
        ["connectivity", "hidden_dim", 3],
    ),
    ({"connectivity": {"name": "mlp", "width": 3}}, ["connectivity", "'width'"]),
    ({"connectivity": {"hidden_dim": 3}}, ["connectivity", "name", "mlp", "bilinear"]),
    ({"connectivity": "mpl"}, ["connectivity", "mlp", "bilinear", "'mpl'"]),
    ({"solver": "exact"}, ["solver", "'exact'"]),
    ({"solver": {"name": "direct", "tol": 1}}, ["solver", "'tol'", "'direct'"]),
    ({"solver": {"max_step": 1}}, ["solver", "'max_step'", "max_iter"]),
    ({"solver": {"max_iter": 0}}, ["max_iter", 1, 0]),
]


class TestSettings:
    @pytest.mark.parametrize(("options", "parts"), INVALID)
    def test_invalid_options_raise_in_pool_and_settings(self, options, parts):
        with pytest.raises(ValueError, match=mentions(*parts)):
            CentralityPool(D, **options)
        with pytest.raises(SettingsError, match=mentions("aggregator", *parts)):
            read_aggregator({"name": "centrality", **options})

    @pytest.mark.parametrize(
        ("option", "parts"),
        [
            ({"value": "flows"}, ["value", "'states'", "'incoming'"]),
            ({"hidden_dim": "many"}, ["hidden_dim", "integer"]),
            ({"max_relative_distance": 0.5}, ["max_relative_distance", "integer"]),
        ],
    )
    def test_the_error_names_a_setting_of_the_wrong_type(self, option, parts):
        with pytest.raises(SettingsError, match=mentions(*parts)):
            read_aggregator({"name": "centrality", **option})

    def test_settings_without_the_newer_options_are_unchanged(self):
        config = small_config("text", "centrality")
        content = config.model_dump()
        for key in (
            "source_init_gain",
            "edge_dropout",
            "value",
            "max_relative_distance",
            "solver",
        ):
            del content["settings"]["aggregator"][key]
        assert ModelConfig.model_validate(content) == config
        assert list(build_model(config).aggregator.state_dict()) == [
            "connectivity.score",
            "connectivity.target.weight",
            "connectivity.target.bias",
            "connectivity.source.weight",
        ]

    @pytest.mark.parametrize("kind", ["text", "document", "pair"])
    def test_a_model_with_all_options_can_be_saved(self, kind, tmp_path, monkeypatch):
        settings = settings_from(CentralityPool)(
            hidden_dim=4,
            num_heads=2,
            source_init_gain=3.0,
            edge_dropout=0.5,
            value="incoming",
        )
        monkeypatch.setitem(AGGREGATORS, "centrality", settings)
        model = small_model(kind, "centrality")
        pool = model.aggregator
        assert (pool.source_init_gain, pool.edge_dropout) == (3.0, 0.5)
        assert pool.value == "incoming"
        model.save_pretrained(tmp_path)
        again = load_model(tmp_path)
        flat, full = batches(kind)
        assert again.config == model.config
        assert torch.equal(again(**flat).logits, model(**flat).logits)
        torch.testing.assert_close(model(**full).logits, model(**flat).logits)

    def test_repr_shows_only_options_that_differ_from_the_default(self):
        assert CentralityPool(D).extra_repr().endswith("activation='tanh'")
        pool = CentralityPool(
            D, source_init_gain=2.0, edge_dropout=0.1, value="incoming"
        )
        assert pool.extra_repr().endswith(
            "'tanh', source_init_gain=2.0, edge_dropout=0.1, value='incoming'"
        )
