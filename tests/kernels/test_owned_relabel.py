"""Numbers on one of several ranks: compiled against plain torch, and both against Python's lists."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from workbench.kernels.relabel import TorchOwnedRelabeler, owned_relabeler, renumber

IDS = st.lists(st.integers(0, 99), max_size=40)


def owners(num_ranks: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(num_ranks, (100,), generator=generator, dtype=torch.int32)


@given(ids=IDS, asked=IDS, num_ranks=st.integers(1, 64), seed=st.integers(0, 2**16))
def test_own_ids_come_first_and_others_follow_by_owner(
    ids: list[int], asked: list[int], num_ranks: int, seed: int
) -> None:
    owner, of = owners(num_ranks, seed), owners(num_ranks, seed).tolist()
    rank = of[0]
    begun = [v for v in range(20) if of[v] == rank]
    new = [v for v in dict.fromkeys(ids) if v not in begun]
    halo = sorted((v for v in new if of[v] != rank), key=lambda v: (of[v], v))
    own = begun + [v for v in new if of[v] == rank]
    wanted = [v for v in asked if of[v] == rank]
    everything = own + list(dict.fromkeys(v for v in wanted if v not in own))
    sources, first = torch.tensor(ids, dtype=torch.int64), torch.tensor(begun, dtype=torch.int64)
    found = []
    with owned_relabeler(100, first) as labels:
        numbers = labels(sources)
        found.append((numbers, labels.split(len(first), owner, rank, num_ranks)))
    plain = TorchOwnedRelabeler(first)
    found.append((plain(sources), plain.split(len(first), owner, rank, num_ranks)))
    for numbers, split in found:
        assert (split.own.tolist(), split.halo.tolist()) == (own, halo)
        assert split.counts.tolist() == [sum(of[v] == q for v in halo) for q in range(num_ranks)]
        local = renumber(numbers, split, len(everything)).tolist()
        assert [(everything + halo)[v] for v in local] == ids
        with owned_relabeler(100, split.own) as labels:
            sent = labels.answer(torch.tensor(wanted, dtype=torch.int64), owner, rank)
            assert sent is not None and labels.node_ids.tolist() == everything
            assert [everything[v] for v in sent.tolist()] == wanted
        again = TorchOwnedRelabeler(split.own)
        assert torch.equal(sent, again.answer(torch.tensor(wanted, dtype=torch.int64), owner, rank))  # type: ignore[arg-type]
        assert again.node_ids.tolist() == everything


@pytest.mark.parametrize("asked", [[0, 1], [100], [-1]])
def test_ids_of_other_ranks_are_not_answered(asked: list[int]) -> None:
    owner, ids = torch.arange(100, dtype=torch.int32) % 2, torch.tensor(asked)
    with owned_relabeler(100, torch.tensor([2])) as labels:
        assert labels.answer(ids, owner, 0) is None
    assert TorchOwnedRelabeler(torch.tensor([2])).answer(ids, owner, 0) is None
