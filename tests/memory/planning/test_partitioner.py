"""All partitions of a plan are by one method, which the plan names."""

import torch

from tests.memory.counting import alone, batch, count
from tests.strategies import random_graph, random_minibatch
from workbench.memory.plan import plan_with
from workbench.memory.planning import partitioner
from workbench.partition import batch as batch_partitions
from workbench.partition.batch import reg


def test_the_method_is_that_which_partitioned():
    among, apart = batch(200, 200), random_minibatch(random_graph(300, 1500), range(200, 260), (5,))
    for mb, method in ((among, "metis"), (apart, "reg")):
        capacity = max(max(alone(mb)), count(mb).peak_bytes // 2)
        made = plan_with(count, mb, capacity_bytes=capacity)
        assert (made.method, made.asked, made.method_name) == (method, "auto", f"auto ({method})")
        assert f"parts by auto ({method})" in repr(made)
        same = plan_with(count, mb, capacity_bytes=capacity, method=method)
        assert same.method_name == method and torch.equal(same.assignment, made.assignment)
        assert plan_with(count, mb, capacity_bytes=10**9).method_name == "auto"
        clusters = plan_with(count, mb, capacity_bytes=capacity, node_parts=torch.arange(400))
        assert clusters.method_name == "auto (cluster)"


def test_auto_is_settled_once(monkeypatch):
    """Whatever else takes the memory that reg's graph would need, all tries are by one method."""
    mb = random_minibatch(random_graph(300, 1500), range(200, 260), (5,))
    capacity = max(alone(mb)) + 1000
    expected = plan_with(count, mb, capacity_bytes=capacity, method="reg")
    left = iter([10**9])
    monkeypatch.setattr(partitioner, "available_bytes", lambda: next(left))
    for module in (batch_partitions, reg):
        monkeypatch.setattr(module, "available_bytes", lambda: 0)
    made = plan_with(count, mb, capacity_bytes=capacity)
    assert len(made.tried) > 2 and made.method == "reg" and torch.equal(made.assignment, expected.assignment)
