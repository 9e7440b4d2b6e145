"""Outputs on sampled batches: those of the model in evaluation mode, seed by seed, from memory and from a buffer."""

import pytest
import torch

import workbench as wb
from tests.outofcore.memory_buffer import MemoryBuffer, MemoryStore
from tests.strategies import random_graph

P, NODES = 6, 50
GRAPH = random_graph(NODES, 300)
X = torch.randn(NODES, 4, generator=torch.Generator().manual_seed(0))
IDS = torch.arange(1, NODES, 3)
SAMPLER = wb.NeighborSampler([3, 2])


@pytest.fixture
def model():
    return wb.build_model("sage-mean", in_dim=4, hidden_dim=5, out_dim=3, dropout=0.5)


def test_outputs_are_those_of_the_model_in_evaluation_mode_which_is_not_changed(model):
    batches = wb.batches(GRAPH, IDS, sampler=SAMPLER, batch_size=5, epoch=0)
    seeds, logits = wb.sampled_logits(model, batches, X)
    assert model.training and not logits.requires_grad
    model.eval()
    expected = {int(n): row for _, mb in batches for n, row in zip(mb.seeds, model(mb.blocks, X[mb.node_ids]))}  # noqa: B905
    assert sorted(seeds.tolist()) == IDS.tolist()
    assert torch.equal(logits, torch.stack([expected[int(node)] for node in seeds]))


def test_a_buffer_evaluates_any_nodes_and_reads_no_row_outside_of_it(model):
    buffer = MemoryBuffer(MemoryStore(GRAPH, X, P), 2)
    loader = wb.outofcore.batches(buffer, wb.outofcore.node_order(P, 2, P), IDS, sampler=SAMPLER, batch_size=4, epoch=0)
    seeds, logits = wb.sampled_logits(model, loader)
    assert sorted(seeds.tolist()) == IDS.tolist() and not logits.isnan().any()


def test_bad_input_is_refused(model):
    with pytest.raises(TypeError, match="x is None, and the batches come without rows"):
        wb.sampled_logits(model, wb.batches(GRAPH, IDS, sampler=SAMPLER, batch_size=5))
    with pytest.raises(ValueError, match="no batches"):
        wb.sampled_logits(model, [], X)
    with pytest.raises(TypeError, match="a batch"):
        wb.sampled_logits(model, [IDS], X)


def logits_of(model, rows=X, **options):
    return wb.sampled_logits(model, wb.batches(GRAPH, IDS, sampler=SAMPLER, batch_size=5, epoch=0), rows, **options)[1]


@pytest.mark.parametrize("norm", [None, "batch"])
def test_a_forward_of_the_callers_evaluates_too(norm):
    options = {"norm": norm} if norm else {}
    model = wb.build_model("sage-mean", in_dim=4, hidden_dim=5, out_dim=3, dropout=0.5, **options)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = logits_of(model, forward=lambda mb, inputs: model(mb.blocks, inputs.x))
    assert torch.equal(found, logits_of(model)) and model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_compiled_model_stays_whole(model):
    expected, compiled = logits_of(model), torch.compile(model, backend="eager")
    assert torch.equal(logits_of(compiled), expected)
    assert compiled.training and model.training and len(model.layers) == 2


def test_modes_are_restored_where_a_batch_fails(model):
    model.layers[0].eval()
    with pytest.raises(ZeroDivisionError):
        logits_of(model, forward=lambda mb, inputs: 1 / 0)
    assert model.training and not model.layers[0].training and model.layers[1].training


def test_rows_with_aggregates():
    model = wb.build_model("sage-mean", in_dim=4, hidden_dim=5, out_dim=3)
    rows = wb.training.AggregatedRows(X, wb.macrobatch.aggregate_rows(GRAPH, X, model=model))
    sampler = wb.macrobatch.WithoutInputLayer(wb.FullNeighborSampler(2))
    seeds, found = wb.sampled_logits(model, wb.batches(GRAPH, IDS, sampler=sampler, batch_size=5), rows)
    expected = wb.full_neighbour_logits(model, GRAPH, X)[seeds]
    torch.testing.assert_close(found, expected)
