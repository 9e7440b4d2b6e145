"""Steps of learnt rows against `torch.optim.Adagrad` on an embedding, dense and sparse."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

import workbench as wb
from workbench.features.learned_rows import adagrad_rows, adagrad_rows_torch, state_dtype
from workbench.kernels.gather import add_rows, add_rows_torch

ROWS, DIM = 12, 3
START = torch.linspace(-1, 1, ROWS * DIM, dtype=torch.float64).cos().view(ROWS, DIM)
BATCHES = [torch.tensor(ids) for ids in ([3, 1, 7], [1, 1, 3, 0, 1], [11], [0, 3, 3, 5])]


class Store(wb.MemoryRows):
    """Notes what is read and written; it is not updated in place, and fails on demand."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor)
        self.rows, self.calls = tensor, []
        self.fails: BaseException | Callable[[], object] | None = None

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        self.calls.append(("read", sorted(ids.tolist())))
        return super().read(ids, out=out)

    def write(self, ids: Tensor, rows: Tensor) -> None:
        self.calls.append(("write", sorted(ids.tolist())))
        if isinstance(self.fails, BaseException):
            raise self.fails
        if self.fails is not None:
            self.fails()
        super().write(ids, rows)


def loss_of(rows: Tensor) -> Tensor:
    return (rows * torch.arange(1, rows.numel() + 1, dtype=rows.dtype).view_as(rows)).sin().sum()


def train(rows: wb.LearnedRows, batches: list[Tensor], *, parts: int = 1) -> None:
    for ids in batches:
        weight = torch.arange(1, ids.numel() * DIM + 1, dtype=rows.dtype).view(-1, DIM)
        for chosen in torch.arange(len(ids)).tensor_split(parts):
            leaf = rows.read(ids[chosen])
            (leaf * weight[chosen]).sin().sum().backward()
            assert leaf.grad is not None
            rows.add_gradients(ids[chosen], leaf.grad)
        rows.step()


def embedding_after(batches: list[Tensor], *, sparse: bool, lr: float, eps: float) -> tuple[Tensor, Tensor]:
    table = nn.Embedding.from_pretrained(START.clone(), freeze=False, sparse=sparse)
    optimizer = torch.optim.Adagrad(table.parameters(), lr=lr, eps=eps)
    for ids in batches:
        optimizer.zero_grad()
        loss_of(table(ids)).backward()
        optimizer.step()
    return table.weight.detach(), optimizer.state[table.weight]["sum"]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("make", [lambda x: x, Store], ids=["tensor", "store"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("parts", [1, 3])
def test_equals_torch(make: Callable[[Tensor], Any], sparse: bool, parts: int) -> None:
    values, state = START.clone(), torch.zeros_like(START)
    train(wb.LearnedRows(make(values), make(state), lr=0.3, eps=1e-3), BATCHES, parts=parts)
    expected = embedding_after(BATCHES, sparse=sparse, lr=0.3, eps=1e-3)
    for found, right in zip((values, state), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


def test_rows_of_one_number_each() -> None:
    """A bias per node, say: rows without a second dimension are summed and updated as rows of one column."""
    values = START[:, 0].clone(), START[:, :1].clone()
    flat, column = (wb.LearnedRows(each, lr=0.3) for each in values)
    for ids in (torch.tensor([0, 1]), torch.tensor([1, 2])):
        flat.add_gradients(ids, torch.ones(2, dtype=START.dtype))
        column.add_gradients(ids, torch.ones(2, 1, dtype=START.dtype))
    flat.step()
    column.step()
    assert torch.equal(values[0], values[1][:, 0]) and not torch.equal(values[0], START[:, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stores_and_tensors_give_the_same_bits(dtype: torch.dtype) -> None:
    results = []
    for make in (lambda x: x, Store):
        tensors = START.to(dtype, copy=True), torch.zeros(ROWS, DIM, dtype=dtype)
        train(wb.LearnedRows(*map(make, tensors), lr=0.1), BATCHES * 3, parts=2)
        results.append(tensors)
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_only_rows_with_gradients_are_touched() -> None:
    values, state = Store(START.clone()), Store(torch.zeros_like(START))
    rows = wb.LearnedRows(values, state)
    train(rows, [torch.tensor([7, 2, 7])])
    assert values.calls == [("read", [2, 7, 7]), ("read", [2, 7]), ("write", [2, 7])]
    assert state.calls == [("read", [2, 7]), ("write", [2, 7])]
    rows.step()
    assert values.calls[3:] == [("read", []), ("write", [])]


def test_reads() -> None:
    rows = wb.LearnedRows(START.clone())
    ids = torch.tensor([4, 4, 0], dtype=torch.int32)
    leaf = rows.read(ids)
    assert torch.equal(leaf, START[ids.long()]) and leaf.requires_grad and leaf.is_leaf
    with torch.no_grad():
        assert not rows.read(ids).requires_grad
    out = torch.empty(3, DIM, dtype=torch.float64)
    assert rows.read(ids, out=out) is out and not out.requires_grad and torch.equal(out, leaf)
    assert (len(rows), rows.row_shape, rows.dtype, rows.device.type) == (ROWS, (DIM,), torch.float64, "cpu")


def test_accumulates_through_train_step() -> None:
    """`add` is the `after` of train_step: whole batch and micro-batches give the same rows."""
    graph = wb.Graph.from_edges(*torch.randint(ROWS, (2, 60)), num_nodes=ROWS)
    batch, results = wb.NeighborSampler([2]).sample(graph, torch.arange(8)), []
    for micro in ([batch], batch.split(torch.arange(8) % 3)):
        torch.manual_seed(0)
        model = wb.build_model("sage-mean", in_dim=DIM, hidden_dim=4, out_dim=2, num_layers=1).double()
        rows = wb.LearnedRows(START.clone(), lr=0.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        wb.train_step(
            model, micro, rows, torch.arange(ROWS) % 2, nn.functional.cross_entropy, optimizer, after=rows.add
        )
        rows.step()
        with torch.no_grad():
            results.append(rows.read(torch.arange(ROWS)))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)
    assert not torch.equal(results[0], START)


@pytest.mark.parametrize(
    ("dtype", "convert"),
    [(torch.bfloat16, torch.Tensor.float), (torch.float32, lambda x: 2 * x)],
    ids=["cast", "scaled"],
)
def test_rows_that_were_computed_from_those_read_are_refused(
    dtype: torch.dtype, convert: Callable[[Tensor], Tensor]
) -> None:
    """Their gradients reach the rows that `read` returned, which `add` does not see."""
    graph = wb.Graph.from_edges(*torch.randint(ROWS, (2, 60)), num_nodes=ROWS)
    batch = wb.NeighborSampler([2]).sample(graph, torch.arange(8))
    model = wb.build_model("sage-mean", in_dim=DIM, hidden_dim=4, out_dim=2, num_layers=1)
    values = START.to(dtype)
    rows = wb.LearnedRows(values)

    def loss_of(out: Tensor, mb: wb.MiniBatch) -> Tensor:
        return nn.functional.cross_entropy(out, mb.seeds % 2)

    with pytest.raises(ValueError, match=r"x was computed from the rows; return rows\.read\(…\) itself and convert it"):
        wb.accumulate(model, [batch], lambda mb: convert(rows.read(mb.node_ids)), loss_of, after=rows.add)
    rows.step()
    assert torch.equal(values, START.to(dtype))
    wb.accumulate(model, [batch], lambda mb: rows.read(mb.node_ids).detach().float(), loss_of, after=rows.add)


def test_discarded_gradients() -> None:
    values = START.clone()
    rows = wb.LearnedRows(values)
    rows.add_gradients(torch.tensor([1]), torch.ones(1, DIM, dtype=torch.float64))
    rows.zero_grad()
    rows.step()
    assert torch.equal(values, START)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))  # handled by now


@pytest.mark.parametrize("fails", [OSError("no space left"), interrupt], ids=["error", "interrupt"])
def test_all_rows_or_none(fails: Any) -> None:
    values, state = Store(START.clone()), Store(torch.zeros_like(START))
    rows = wb.LearnedRows(values, state)
    rows.add_gradients(torch.tensor([1, 5]), torch.ones(2, DIM, dtype=torch.float64))
    state.fails = fails
    with pytest.raises((OSError, KeyboardInterrupt)):
        rows.step()
    changed = [bool((now != before).any()) for now, before in ((values.rows, START), (state.rows, 0))]
    assert changed == ([False, False] if isinstance(fails, OSError) else [True, True])
    after, state.fails = values.rows.clone(), None
    rows.step()
    assert torch.equal(after, values.rows) == (fails is interrupt), "only a step that failed is taken again"


@given(
    st.lists(st.integers(0, 5), max_size=30),
    st.sampled_from((torch.float32, torch.float64)),
)
def test_sums_equal_those_in_plain_torch(positions: list[int], dtype: torch.dtype) -> None:
    ids = torch.tensor(positions, dtype=torch.int64)
    rows = torch.linspace(-3, 7, len(ids) * DIM, dtype=dtype).view(-1, DIM).exp()
    found, plain, expected = (rows.new_zeros(6, DIM) for _ in range(3))
    add_rows(found, ids, rows)
    add_rows_torch(plain, ids, rows)
    assert torch.equal(found, plain)
    torch.testing.assert_close(found, expected.index_add_(0, ids, rows))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_updates_equal_those_in_plain_torch(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    values, gradients = (torch.randn(500, 2, 25, generator=generator).to(dtype) for _ in range(2))
    gradients = gradients.to(state_dtype(dtype))
    state, ids = gradients.square(), torch.randperm(500, generator=generator)[:400]
    found, expected = ((values.clone(), state.clone()) for _ in range(2))
    adagrad_rows(*found, ids, gradients[:400], lr=0.1, eps=1e-10)
    adagrad_rows_torch(*expected, ids, gradients[:400], lr=0.1, eps=1e-10)
    ulp = torch.finfo(dtype).eps  # torch's square root is not always correctly rounded
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2 * ulp, atol=2 * ulp)
    untouched = torch.ones(500, dtype=torch.bool).index_fill(0, ids, False)
    assert torch.equal(found[0][untouched], values[untouched])


HALF = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}  # distance of numbers from 1 on
GRADIENTS = torch.tensor([0.0, 1e-7, 6e-5, 1e-3, 0.5, 1.0, 300.0, 6e4], dtype=torch.float64)


@pytest.mark.parametrize("make", [lambda x: x, Store], ids=["tensor", "store"])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_equals_float64(dtype: torch.dtype, parts: int, make: Callable[[Tensor], Any]) -> None:
    """400 steps of equal gradients from 0 to 6e4, whose squares float16 has not, and whose sums bfloat16 has not."""
    gradients = GRADIENTS.to(dtype)
    values, state = torch.zeros(8, 1, dtype=dtype), torch.zeros(8, 1)
    rows = wb.LearnedRows(make(values), make(state), lr=0.25)
    exact, sums = torch.zeros(8, 1, dtype=torch.float64), torch.zeros(8, 1, dtype=torch.float64)
    for _ in range(400):
        for _ in range(parts):
            rows.add_gradients(torch.arange(8), gradients[:, None])
        rows.step()
        total = parts * gradients.double()[:, None]
        sums += total.square()
        exact = (exact - 0.25 * total / (sums.sqrt() + 1e-10)).to(dtype).double()  # stored rows are rounded
    torch.testing.assert_close(state.double(), sums, rtol=2e-5, atol=0)  # 400 additions in float32
    assert values[0] == 0 and bool((exact[1:] < -0.25).all())
    torch.testing.assert_close(values.double(), exact, rtol=4 * HALF[dtype], atol=0)


@pytest.mark.parametrize("dtype", HALF)
def test_gradients_of_half_precision_are_summed_in_float32(dtype: torch.dtype) -> None:
    """1 + 1,000 · ulp / 4: in half precision every addend is lost."""
    state = torch.zeros(1, 1)
    rows = wb.LearnedRows(torch.zeros(1, 1, dtype=dtype), state)
    small = torch.full((1000, 1), HALF[dtype] / 4, dtype=dtype)
    rows.add_gradients(torch.zeros(1, dtype=torch.int64), torch.ones(1, 1, dtype=dtype))
    rows.add_gradients(torch.zeros(1000, dtype=torch.int64), small)
    rows.step()
    assert float(state) == pytest.approx((1 + 250 * HALF[dtype]) ** 2, rel=1e-5)


@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        (TypeError, "values are torch.int64", lambda: wb.LearnedRows(torch.arange(3))),
        (TypeError, "values is a dict", lambda: wb.LearnedRows({})),
        (TypeError, "values is .*Linear", lambda: wb.LearnedRows(nn.Linear(1, 1))),
        (ValueError, r"pass values\.detach\(\)", lambda: wb.LearnedRows(START.clone().requires_grad_())),
        (
            ValueError,
            r"values requires a gradient; rows are updated by step\(\), pass a store of its rows, detached",
            lambda: wb.LearnedRows(wb.MemoryRows(nn.Parameter(START.bfloat16()))),
        ),
        (
            ValueError,
            "state requires a gradient",
            lambda: wb.LearnedRows(START, wb.MemoryRows(START.clone().requires_grad_())),
        ),
        (ValueError, r"state has row_shape \(2,\)", lambda: wb.LearnedRows(START, START[:, :2])),
        (ValueError, "state has dtype torch.float32", lambda: wb.LearnedRows(START, START.float())),
        (
            ValueError,
            r"state has dtype torch.float16, but that of torch.float16 values is torch.float32; pass torch.zeros_like",
            lambda: wb.LearnedRows(START.half(), START.half()),
        ),
        (ValueError, "state has 11 rows", lambda: wb.LearnedRows(START, START[1:])),
        (ValueError, "lr is 0", lambda: wb.LearnedRows(START, lr=0)),
        (ValueError, "lr is nan", lambda: wb.LearnedRows(START, lr=float("nan"))),
        (ValueError, "eps is -1", lambda: wb.LearnedRows(START, eps=-1)),
        (ValueError, "eps is 0; it must be above 0", lambda: wb.LearnedRows(START, eps=0)),
        (IndexError, "ids contains 12", lambda: wb.LearnedRows(START).read(torch.tensor([12]))),
        (IndexError, "ids contains 12", lambda: wb.LearnedRows(START).add_gradients(torch.tensor([12]), START[:1])),
        (
            ValueError,
            r"gradients has shape \(1, 3\)",
            lambda: wb.LearnedRows(START).add_gradients(torch.arange(2), START[:1]),
        ),
        (
            TypeError,
            "gradients is torch.float32",
            lambda: wb.LearnedRows(START).add_gradients(torch.arange(1), START[:1].float()),
        ),
    ],
)
def test_refusals(error: type[Exception], match: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=match):
        call()
