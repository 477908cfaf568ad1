"""Guarantees that all aggregators share."""

from functools import partial

import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.triton import DEVICE, with_triton
from safetensors.torch import load_file, save_file

from perron import (
    CentralityPool,
    Connectivity,
    DynamicRoutingPool,
    FirstPool,
    GraphCentralityPool,
    IntraAttentionPool,
    MaxPool,
    MeanPool,
    PowerIteration,
    SelfAttentionPool,
    project,
)
from perron.kernels import use

D = 8


class DistanceGraphPool(GraphCentralityPool):
    """`GraphCentralityPool` with a graph computed from the states."""

    num_heads = 1

    def forward(self, states, mask=None, *, lengths=None, **options):
        padded = states
        if lengths is not None:
            padded = torch.nn.utils.rnn.pad_sequence(
                states.split(lengths), batch_first=True
            )
        x = padded.float() if padded.element_size() < 4 else padded
        x = x.nan_to_num()
        with torch.autocast("cpu", enabled=False):
            graph = (0.1 * x @ x.sin().mT).exp()
        return super().forward(states, graph, mask, lengths=lengths, **options)


class DotConnectivity(Connectivity):
    """Connectivity as a user would write it, which does not mask its scores."""

    def __init__(self, embed_dim, device=None, dtype=None):
        super().__init__()
        self.key = torch.nn.Linear(embed_dim, embed_dim, device=device, dtype=dtype)

    def forward(self, tokens):
        keys = tokens.to_padded(project(self.key, tokens.states))
        return (keys @ tokens.to_padded(tokens.states).mT).unsqueeze(1)


BUILDERS = {
    "max": partial(MaxPool, D),
    "mean": partial(MeanPool, D),
    "first": partial(FirstPool, D),
    "self-attention": partial(SelfAttentionPool, D),
    "self-attention, 3 queries": partial(SelfAttentionPool, D, num_queries=3),
    "intra-attention": partial(IntraAttentionPool, D),
    "routing": partial(DynamicRoutingPool, D),
    "routing, reverse": partial(DynamicRoutingPool, D, reverse=True, capsule_dim=3),
    "centrality": partial(CentralityPool, D),
    "centrality, relu": partial(CentralityPool, D, activation="relu"),
    "centrality, 2 heads, l2": partial(CentralityPool, D, num_heads=2, norm="l2"),
    "centrality, bilinear": partial(
        CentralityPool, D, hidden_dim=4, num_heads=3, connectivity="bilinear"
    ),
    "centrality, query": partial(CentralityPool, D, num_heads=2, connectivity="query"),
    "centrality, custom, incoming": lambda **factory: CentralityPool(
        D, connectivity=DotConnectivity(D, **factory), value="incoming", **factory
    ),
    "centrality, incoming": partial(CentralityPool, D, value="incoming"),
    "centrality, incoming, 2 heads, l2": partial(
        CentralityPool,
        D,
        num_heads=2,
        connectivity="bilinear",
        norm="l2",
        value="incoming",
    ),
    "centrality, incoming, power": partial(
        CentralityPool, D, solver=PowerIteration(), value="incoming"
    ),
    "centrality, low rank": partial(
        CentralityPool, D, hidden_dim=5, connectivity="low_rank", rank=4
    ),
    "centrality, low rank, 2 heads, l2": partial(
        CentralityPool,
        D,
        num_heads=2,
        connectivity="low_rank",
        norm="l2",
        activation="relu",
    ),
    "centrality, low rank, power": partial(
        CentralityPool, D, connectivity="low_rank", solver="power"
    ),
    "graph": partial(DistanceGraphPool, D, dim=-2),
    "graph, rows, l2": partial(DistanceGraphPool, D, dim=-1, norm="l2"),
    "centrality, reverse": partial(CentralityPool, D, solver={"tol": 1e-7}),
    "centrality, truncated": partial(
        CentralityPool, D, num_heads=2, solver=PowerIteration(gradient="truncated")
    ),
    "centrality, unrolled": partial(
        CentralityPool, D, solver=PowerIteration(gradient="unrolled")
    ),
}
TRANSFORMED = ("routing", "incoming")  # do not pool the states themselves


# With plain torch, states stay padded, as in traced graphs and on other devices.
KERNELS = with_triton({"packed": "numba", "padded": "torch"})
if DEVICE:  # one pool for each way to call the Triton kernels
    few = partial(CentralityPool, D, hidden_dim=4)
    BUILDERS = {
        "centrality, 2 heads, l2": partial(few, num_heads=2, norm="l2"),
        "centrality, relu, incoming": partial(few, activation="relu", value="incoming"),
        "centrality, low rank": partial(few, connectivity="low_rank", rank=4),
        "graph, rows": partial(DistanceGraphPool, D, dim=-1),
    }
    if DEVICE == "interpreter":  # the others take 20 seconds, and only use the solver
        del BUILDERS["centrality, low rank"], BUILDERS["graph, rows"]


@pytest.fixture(params=BUILDERS)
def name(request):
    return request.param


@pytest.fixture(params=KERNELS)
def pool(name, request):
    with use(KERNELS[request.param]):
        yield BUILDERS[name]()


@pytest.fixture
def padded():
    states = torch.randn(4, 6, D, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor(
        [
            [1, 1, 1, 1, 0, 0],
            [1, 1, 0, 0, 0, 0],
            [0, 0, 1, 0, 1, 1],
            [1, 1, 1, 1, 1, 1],
        ],
        dtype=torch.bool,
    )
    return states, mask


class TestEveryAggregator:
    def test_output_shapes(self, pool, padded):
        states, mask = padded
        pooled = pool(states, mask, need_edges=True)
        assert pooled.vector.shape == (4, pool.out_dim)
        if pooled.weights is not None:
            assert pooled.weights.shape == (4, 6)
            assert pooled.head_weights.shape[::2] == (4, 6)
            assert (pooled.weights[~mask] == 0).all()
        if pooled.edges is not None:
            assert pooled.edges.shape == (4, 6, 6)
            assert pooled.head_edges.shape == (4, pool.num_heads, 6, 6)

    def test_edges_are_returned_only_on_request(self, pool, padded):
        assert pool(*padded).edges is None
        assert pool(*padded).head_edges is None

    @pytest.mark.parametrize("fill", [0.0, 1e30, torch.nan, torch.inf])
    def test_padding_does_not_change_the_output(self, pool, padded, fill):
        states, mask = padded
        alone = pool(states[1:2, :2], mask[1:2, :2]).vector
        filled = states.masked_fill(~mask.unsqueeze(-1), fill)
        torch.testing.assert_close(pool(filled, mask).vector[1:2], alone)
        assert torch.equal(pool(filled, mask).vector, pool(states, mask).vector)

    def test_the_position_of_padding_does_not_change_the_output(self, pool, padded):
        states, mask = padded
        words = states[2][mask[2]].unsqueeze(0)
        torch.testing.assert_close(pool(states, mask).vector[2:3], pool(words).vector)

    def test_padding_gets_no_gradient(self, pool, padded):
        states, mask = padded
        states = states.masked_fill(~mask.unsqueeze(-1), torch.nan).requires_grad_()
        pool(states, mask).vector.square().sum().backward()
        assert (states.grad[~mask] == 0).all()
        assert states.grad.isfinite().all()
        for parameter in pool.parameters():
            assert parameter.grad.isfinite().all()

    def test_ragged_states_give_the_same_output(self, pool, padded):
        states, mask = padded
        order = torch.argsort(~mask, dim=1, stable=True)  # words to the front
        states = states.gather(1, order.unsqueeze(-1).expand_as(states))
        mask = mask.gather(1, order)
        mask[1] = False
        want = pool(states, mask, need_edges=True)
        got = pool(states[mask], lengths=mask.sum(1).tolist(), need_edges=True)
        torch.testing.assert_close(got.vector, want.vector)
        if want.weights is not None:
            torch.testing.assert_close(got.weights, want.weights[mask])
            head_weights = want.head_weights.mT[mask].mT
            torch.testing.assert_close(got.head_weights, head_weights)
        if want.edges is not None:
            torch.testing.assert_close(got.edges, want.edges)

    def test_the_order_of_texts_does_not_change_the_vectors(self, pool, padded):
        states, mask = padded
        order = torch.tensor([2, 0, 3, 1])
        torch.testing.assert_close(
            pool(states[order], mask[order]).vector, pool(states, mask).vector[order]
        )

    def test_the_order_of_words_does_not_change_the_vectors(self, name, pool, padded):
        if name == "first":
            pytest.skip("depends on the order by definition")
        states, mask = padded
        order = torch.tensor([5, 0, 3, 1, 4, 2])
        permuted = pool(states[:, order], mask[:, order])
        torch.testing.assert_close(permuted.vector, pool(states, mask).vector)

    def test_inputs_are_not_modified(self, pool, padded):
        states, mask = padded
        before = states.clone(), mask.clone()
        pool(states.requires_grad_(), mask).vector.sum().backward()
        assert torch.equal(states, before[0])
        assert torch.equal(mask, before[1])

    def test_a_text_with_no_words_gets_zeros_and_zero_gradients(self, pool, padded):
        states, mask = padded
        mask[0] = False
        states.requires_grad_()
        pooled = pool(states, mask)
        pooled.vector.square().sum().backward()
        assert (pooled.vector[0] == 0).all()
        assert pooled.weights is None or (pooled.weights[0] == 0).all()
        assert (states.grad[0] == 0).all()
        assert states.grad.isfinite().all()
        assert pooled.vector.isfinite().all()

    @pytest.mark.parametrize("shape", [(0, 6, D), (3, 0, D), (0, 0, D)])
    def test_empty_batches_and_batches_of_empty_texts_work(self, pool, shape):
        states = torch.zeros(shape, requires_grad=True)
        pooled = pool(states, need_edges=True)
        pooled.vector.sum().backward()
        assert pooled.vector.shape == (shape[0], pool.out_dim)
        assert (pooled.vector == 0).all()

    def test_the_default_mask_has_no_padding(self, pool, padded):
        states, mask = padded
        full = torch.ones_like(mask)
        assert torch.equal(pool(states).vector, pool(states, full).vector)

    @pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32])
    def test_numeric_masks_are_equivalent_to_bool(self, pool, padded, dtype):
        states, mask = padded
        want = pool(states, mask).vector
        assert torch.equal(pool(states, mask.to(dtype)).vector, want)

    def test_has_weights_and_has_graph_describe_the_output(self, pool, padded):
        pooled = pool(*padded, need_edges=True)
        assert (pooled.weights is not None) == pool.has_weights
        assert (pooled.edges is not None) == pool.has_graph

    def test_parameters_have_the_given_device_and_dtype(self, name):
        pool = BUILDERS[name](device="meta", dtype=torch.float64)
        for parameter in pool.parameters():
            assert parameter.is_meta
            assert parameter.dtype == torch.float64

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("convert_parameters", [True, False])
    def test_half_precision_is_pooled_in_float32(
        self, pool, padded, dtype, convert_parameters
    ):
        states, mask = padded
        states = states.to(dtype)
        if convert_parameters:
            pool = pool.to(dtype)
        pooled = pool(states, mask, need_edges=True)
        single = pool.float()(states.float(), mask)
        assert pooled.vector.dtype == dtype
        torch.testing.assert_close(pooled.vector, single.vector.to(dtype))
        assert pooled.weights is None or pooled.weights.dtype == dtype

    def test_autocast_has_no_effect(self, pool, padded):
        states, mask = padded
        with torch.autocast("cpu", dtype=torch.bfloat16):
            vector = pool(states, mask).vector
        assert torch.equal(vector, pool(states, mask).vector)

    @pytest.mark.parametrize("scale", [1e-30, 1e2, 1e4, 1e9])
    def test_gradients_are_finite_for_scores_of_any_scale(self, pool, padded, scale):
        states, mask = padded
        with torch.no_grad():
            for parameter in pool.parameters():
                parameter.mul_(scale)
        states.requires_grad_()
        pooled = pool(states, mask)
        pooled.vector.sum().backward()
        assert pooled.vector.isfinite().all()
        assert states.grad.isfinite().all()
        for parameter in pool.parameters():
            assert parameter.grad.isfinite().all()

    def test_the_vector_of_a_single_word_is_its_state(self, name, pool):
        if any(part in name for part in TRANSFORMED):
            pytest.skip("see test_aggregators.py and test_centrality_options.py")
        word = torch.randn(5, 1, D)
        copies = pool.out_dim // D
        torch.testing.assert_close(pool(word).vector, word[:, 0].repeat(1, copies))

    def test_gradcheck(self, pool, padded):
        states, mask = padded
        pool = pool.double()
        states = states.double().requires_grad_()
        if getattr(pool, "solver", "direct") != "direct":
            pool.solver = PowerIteration(tol=1e-14, gradient=pool.solver.gradient)
        assert torch.autograd.gradcheck(
            lambda s, *_: pool(s, mask).vector,
            (states, *pool.parameters()),
            fast_mode=True,
        )

    def test_save_and_load(self, name, pool, padded, tmp_path):
        save_file(pool.state_dict(), tmp_path / "pool.safetensors")
        other = BUILDERS[name]()
        other.load_state_dict(load_file(tmp_path / "pool.safetensors"))
        assert torch.equal(other(*padded).vector, pool(*padded).vector)

    def test_reset_parameters_is_reproducible(self, pool):
        draws = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            pool.reset_parameters()
            draws.append([p.clone() for p in pool.parameters()])
        for first, again, other in zip(*draws, strict=True):
            assert torch.equal(first, again)
            assert not torch.equal(first, other)

    def test_repr_starts_with_class_and_dimension(self, pool):
        text = " ".join(repr(pool).split())
        assert text.startswith(
            (f"{type(pool).__name__}({D}", f"{type(pool).__name__}( {D}")
        )

    @pytest.mark.parametrize(
        ("states", "mask", "parts"),
        [
            (torch.rand(2, D), None, ["states", "(B, N, 8)", (2, 8), "lengths"]),
            (torch.rand(2, 3, 9), None, ["states", "(B, N, 8)", (2, 3, 9)]),
            (torch.ones(2, 3, D).int(), None, ["states", "floating point", "int32"]),
            (torch.rand(2, 3, D), torch.full((2, 3), 0.5), ["mask", 0.5, "float32"]),
            (torch.rand(2, 3, D), torch.full((2, 3), -1), ["mask", -1, "int64"]),
            (torch.rand(2, 3, D), torch.full((2, 3), torch.nan), ["mask", "nan"]),
            (
                torch.rand(2, 3, D),
                torch.ones(2, 4, dtype=torch.bool),
                ["mask", (2, 3), (2, 4)],
            ),
            (
                torch.rand(2, 3, D),
                torch.ones(2, 3, dtype=torch.bool, device="meta"),
                ["mask", "meta", "states", "cpu"],
            ),
        ],
    )
    def test_invalid_arguments_raise_an_error(self, pool, states, mask, parts):
        with pytest.raises(ValueError, match=mentions(*parts)):
            pool(states, mask)
