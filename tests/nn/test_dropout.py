"""Dropout by hash: a node's mask is independent of the rest of the batch."""

import pytest
import torch

from workbench.nn.dropout import HashDropout

IDS = torch.arange(10_000) * 7 + 3


def mask(p: float = 0.3, layer: int = 0, seed: int = 0, step: int = 0, ids: torch.Tensor = IDS, channels: int = 10):
    return HashDropout(p, layer, seed)(torch.ones(len(ids), channels, dtype=torch.float64), ids, step) != 0


def test_a_mask_is_independent_of_position() -> None:
    shuffled = torch.randperm(len(IDS), generator=torch.Generator().manual_seed(1))[:500]
    assert torch.equal(mask(ids=IDS[shuffled]), mask()[shuffled])


def test_a_mask_is_independent_of_the_number_of_channels() -> None:
    assert torch.equal(mask(channels=6), mask(channels=10)[:, :6])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_rate_is_p(p: float) -> None:
    """Within five standard errors: a false alarm has a probability below 1e-6."""
    dropped = (~mask(p)).double().mean().item()
    assert abs(dropped - p) < 5 * (p * (1 - p) / mask().numel()) ** 0.5 + 2**-16


def test_masks_of_steps_layers_seeds_nodes_and_channels_are_uncorrelated() -> None:
    """Correlations are below five standard errors."""
    base = mask().double()
    others = [mask(step=1), mask(layer=1), mask(seed=1), mask(ids=IDS + 7)]
    pairs = [(base.flatten(), other.double().flatten()) for other in others]
    pairs += [(base[:, c], base[:, d]) for c in range(10) for d in range(c)]
    for a, b in pairs:
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1].item()) < 5 / len(a) ** 0.5


def test_values_are_scaled_by_the_inverse_of_the_keep_probability() -> None:
    out = HashDropout(0.25)(torch.ones(4, 4, dtype=torch.float64), torch.arange(4), 0)
    assert set(out.unique().tolist()) <= {0.0, 1 / 0.75}


def test_the_gradient_has_the_same_mask_and_only_ids_are_saved() -> None:
    h = torch.randn(50, 9, dtype=torch.float64, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape) or t, lambda t: t):
        out = HashDropout(0.5)(h, IDS[:50], 2)
    out.sum().backward()
    assert torch.equal(h.grad != 0, out != 0)
    assert saved == [(50,)]


def test_dropped_values_are_zero_even_where_infinite() -> None:
    out = HashDropout(0.5)(torch.full((20, 8), torch.inf), torch.arange(20), 0)
    assert not out.isnan().any()


def test_identity_in_evaluation_mode_and_at_rate_zero() -> None:
    h = torch.randn(5, 3)
    assert HashDropout(0.5).eval()(h, torch.arange(5), 0) is h
    assert HashDropout(0.0)(h, torch.arange(5), 0) is h


def test_without_ids_it_is_torchs_own_dropout() -> None:
    h = torch.ones(100, 20)
    torch.manual_seed(4)
    ours = HashDropout(0.5)(h, None)
    torch.manual_seed(4)
    assert torch.equal(ours, torch.nn.functional.dropout(h, 0.5))


@pytest.mark.parametrize("p", [-0.1, 1.0, 1 - 2**-20, float("nan")])
def test_rates_out_of_range_are_refused(p: float) -> None:
    with pytest.raises(ValueError, match="dropout probability"):
        HashDropout(p)


def test_every_row_needs_an_id() -> None:
    with pytest.raises(ValueError, match="4 node ids for 5 rows"):
        HashDropout(0.5)(torch.ones(5, 2), torch.arange(4))


@pytest.mark.parametrize(
    ("h", "ids", "error", "message"),
    [
        (torch.ones(4), torch.arange(4), ValueError, r"h has shape \(4,\); reshape it to \[nodes, channels\]"),
        (torch.ones(4, 2, 2), torch.arange(4), ValueError, r"h has shape \(4, 2, 2\); reshape"),
        (torch.ones(4, 2), torch.ones(4), TypeError, "node_ids must be a tensor of torch.int64 or torch.int32"),
        (torch.ones(4, 2), [0, 1, 2, 3], TypeError, "not list; pass torch.as_tensor"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused(h, ids, error, message) -> None:
    with pytest.raises(error, match=message):
        HashDropout(0.5)(h, ids)


@pytest.mark.parametrize("seed", [1.5, "7", 2**64, None])
def test_a_seed_must_be_an_integer(seed) -> None:
    with pytest.raises(ValueError, match="seed is "):
        HashDropout(0.5, seed=seed)
