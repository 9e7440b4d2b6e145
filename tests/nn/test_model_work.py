"""The work of models: by hand, and against the operations that torch counts while the layers of nn run."""

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.flop_counter import FlopCounterMode

import workbench as wb
from tests.strategies import random_graph, random_minibatch
from workbench.nn.model import WORK_KINDS, LayerSize, exchanged_widths, model_work

SIZES = [LayerSize(7, 3, 9), LayerSize(3, 2, 4)]


def test_gcn_by_hand():
    # 2 → 5 channels: sums 9 rows of 2 into 3, multiplies 3 rows forward and for the weights; no gradient of the inputs.
    first = 9 * 2 + 3 * 2 + 2 * 3 * (2 + 5)
    # 5 → 4: multiplies 3 rows of 5 three times, sums 4 rows of 4 into 2 and their gradients into 3.
    second = 3 * 3 * (5 + 4) + (4 * 4 + 2 * 4) + (4 * 4 + 3 * 4)
    assert model_work("gcn", SIZES, [2, 5, 4]) == (4 * (first + second), 2 * 2 * 3 * 2 * 5 + 3 * 2 * 3 * 5 * 4)


def test_gat_multiplies_first_and_reads_the_rows_again_for_the_attention():
    product, edges = 2 * 7 * (2 + 5), 3 * 9 * 5
    assert model_work("gat", SIZES[:1], [2, 5]) == (4 * (product + edges + 3 * 5 + 7 * 5), 2 * 2 * 7 * 2 * 5)


def test_gat_that_exchanges_products_multiplies_its_own_sources():
    size, width = LayerSize(7, 3, 9, 4), 5
    product, edges = 2 * 4 * (8 + width), 3 * 9 * width  # no gradient of the inputs; 2 · 5 channels are more than 8
    found = model_work("gat", [size], [8, width], exchanges_products=True)
    assert found == (4 * (product + edges + 3 * width + 7 * width), 2 * 2 * 4 * 8 * width)
    for same in (
        model_work("gat", [size], [8, width]),
        model_work("gat", [size], [8, width], exchanges_products=False),
    ):
        assert same == model_work("gat", [LayerSize(7, 3, 9)], [8, width])
    assert model_work("gat", [size], [10, width]) == model_work("gat", [size], [10, width], exchanges_products=True)


def test_exchanged_widths_are_those_of_inputs_or_of_fewer_products():
    assert exchanged_widths("rgcn", [128, 64, 64, 9]) == [0, 64, 64]
    assert exchanged_widths("gat", [128, 64, 65, 9]) == [64, 64, 9]
    assert exchanged_widths("gat", [127, 64, 65, 9], exchanges_products=None) == [0, 64, 9]
    assert exchanged_widths("gat", [9, 64, 64, 9], exchanges_products=True) == [64, 64, 9]
    assert exchanged_widths("gat", [128, 64, 64, 9], exchanges_products=False) == [0, 64, 64]


def test_rgcn_has_a_product_per_relation_and_a_self_loop():
    product, loop, summed = 2 * 3 * (3 * 2 + 5), 2 * 3 * (2 + 5), 9 * 2 + 3 * 3 * 2
    assert model_work("rgcn", SIZES[:1], [2, 5], relations=3) == (
        4 * (product + loop + summed),
        2 * 2 * 3 * 2 * 5 * (3 + 1),
    )


def test_values_of_half_the_size_are_half_the_bytes():
    whole, half = (model_work("gcn", SIZES, [2, 5, 4], value_bytes=size) for size in (4, 2))
    assert whole.nbytes == 2 * half.nbytes and whole.flops == half.flops


@pytest.mark.parametrize("dims", [[4, 6, 8], [16, 12, 2]])
@pytest.mark.parametrize("kind", WORK_KINDS)
def test_operations_are_those_that_torch_counts(kind, dims, monkeypatch):
    monkeypatch.setattr("workbench.nn.gcn.use_compiled", lambda h: False)  # the order of products on devices
    mb = random_minibatch(random_graph(60, 400, num_edge_types=2), fanouts=(3, 3), num_seeds=9)
    relations: dict[str, Any] = {"num_relations": 2} if kind == "rgcn" else {}
    model = wb.build_model(kind, in_dim=dims[0], hidden_dim=dims[1], out_dim=dims[2], num_layers=2, **relations)
    x = torch.randn(mb.num_inputs, dims[0])
    with FlopCounterMode(display=False) as counter:
        model(mb.blocks, x).sum().backward()
    found = model_work(kind, mb.blocks, dims, relations=2 if relations else 1).flops
    if kind == "gat":  # its scores are products with 2 columns per layer, and of the weights with the attention vectors
        scores = sum(p * 2 * b.num_src * 2 * i for p, b, i in zip((2, 3), mb.blocks, dims, strict=False))
        vectors = 3 * 2 * 2 * (dims[0] * dims[1] + dims[1] * dims[2])
        found += scores + vectors
    if kind == "rgcn" and dims[1] >= dims[0]:  # the coefficients of its bases need the gradient of the first sums
        found += 2 * mb.blocks[0].num_dst * 2 * dims[0] * dims[1]
    assert found == counter.get_total_flops()


@given(st.sampled_from(WORK_KINDS), st.lists(st.integers(1, 9), min_size=3, max_size=3), st.integers(0, 2))
def test_more_nodes_and_edges_are_never_less_work(kind, dims, which):
    more = [size._replace(**{size._fields[which]: size[which] + 1}) for size in SIZES]
    before, after = (model_work(kind, sizes, dims) for sizes in (SIZES, more))
    assert after.nbytes >= before.nbytes and after.flops >= before.flops


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gin", SIZES, [1, 1, 1]), "kind 'gin' is not known; choose from gat, gcn, rgcn"),
        (("gcn", SIZES, [1, 1]), "2 layers have 3 widths, but dims has 2"),
    ],
)
def test_arguments_that_do_not_match_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        model_work(*arguments)


@pytest.mark.parametrize(("kind", "relations"), [("rgcn", 0), ("gcn", 2)])
def test_numbers_of_relations_are_checked(kind, relations):
    with pytest.raises(ValueError, match=f"relations is {relations} for {kind}"):
        model_work(kind, SIZES, [1, 1, 1], relations=relations)
