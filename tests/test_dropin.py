"""The README's drop-in section: scripts before and after train alike, edited lines are counted, mistakes show."""

import re
from collections import Counter
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.hop_loader import HopLoader
from tests.torch_sparse import use_samplers

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NODES, SEEDS, EPOCHS = 200, 150, 2
EDGES = torch.stack(
    [torch.randint(NODES, (900,), generator=torch.Generator().manual_seed(1)), torch.arange(900) % NODES]
)
"""At most 10 in-edges per node, so that the loaders draw all of them, whatever their random numbers."""
X = torch.linspace(-9, 9, NODES * 6).sin().view(NODES, 6)
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0)
LIBRARIES = {"DGL": "dgl", "PyG": "torch_geometric", "plain torch": "torch"}
FILES = {"DGL": "dgl", "PyG": "pyg", "plain torch": "plain"}


def script(kind: str, version: str) -> str:
    return (ROOT / "docs" / "dropin" / f"{FILES[kind]}_{version}.py").read_text(encoding="utf-8")


def trained(
    kind: str, source: str, monkeypatch: pytest.MonkeyPatch, *, pygs_own: bool = False
) -> tuple[list[Any], Tensor]:
    """Run a script on the same data, initial parameters and order of seeds; return losses and parameters."""
    arguments: tuple[Any, ...] = (X, Y, EDGES)
    if kind == "PyG":
        import torch_geometric.loader
        from torch_geometric.data import Data

        if not pygs_own:
            monkeypatch.setattr(torch_geometric.loader, "NeighborLoader", HopLoader)
        arguments = (Data(x=X, y=Y, edge_index=EDGES),)
    elif kind == "DGL":
        import dgl

        graph = dgl.graph((EDGES[0], EDGES[1]), num_nodes=NODES)
        graph.ndata["feat"], graph.ndata["label"] = X, Y
        arguments = (graph,)
    names: dict[str, Any] = {}
    exec(compile(source, kind, "exec"), names)
    torch.manual_seed(0)
    np.random.seed(0)  # DGL shuffles with it
    model = names["Net" if kind == "plain torch" else "SAGE"](6, 8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = names["train"](*arguments, torch.arange(SEEDS), model, optimizer, EPOCHS)
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()])


def edited_and_indented(before: str, after: str) -> tuple[int, int]:
    """Lines to write, change, move or delete, each counted once, and other lines that are only indented."""
    old, new = ([line for line in text.splitlines() if line.strip()] for text in (before, after))
    matcher = SequenceMatcher(None, [line.strip() for line in old], [line.strip() for line in new], autojunk=False)
    removed, written, indented = Counter[str](), Counter[str](), 0
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            indented += sum(a != b for a, b in zip(old[i:j], new[k:m], strict=True))
        else:
            removed.update(line.strip() for line in old[i:j])
            written.update(line.strip() for line in new[k:m])
    only_deleted = (removed - written).total() - (written - removed).total()
    return written.total() + max(0, only_deleted), indented


def test_lines_are_counted() -> None:
    before = "import torch\nfor batch in loader:\n    zero()\n    step(batch)\n    update()\n"
    assert edited_and_indented(before, "import wb\n\n" + before) == (1, 0)
    assert edited_and_indented(before, before.replace("    step", "    for part in batch:\n        step")) == (1, 1)
    assert edited_and_indented(before, before.replace("batch)", "part)")) == (1, 0)
    moved = "import torch\nzero()\nfor batch in loader:\n    step(batch)\n    update()\n"
    assert edited_and_indented(before, moved) == (1, 0)
    assert edited_and_indented(before, before.replace("    update()\n", "")) == (1, 0)
    assert edited_and_indented(before, before.replace("    update()\n", "").replace("zero()", "clear()")) == (2, 0)
    assert edited_and_indented(before, before) == (0, 0)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_the_readme_states_the_number_of_lines(kind: str) -> None:
    edited, indented = edited_and_indented(script(kind, "before"), script(kind, "after"))
    row = re.search(rf"^\| [^|]*{kind}[^|]*\| (\d+) \| (\d+) \|$", README, re.MULTILINE)
    assert row is not None, f"the README has no row for {kind}"
    assert (int(row[1]), int(row[2])) == (edited, indented)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_both_scripts_train_alike(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(LIBRARIES[kind])
    losses, parameters = trained(kind, script(kind, "before"), monkeypatch)
    ours, own_parameters = trained(kind, script(kind, "after"), monkeypatch)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(losses), rtol=1e-5, atol=1e-6)
    assert losses[1] < losses[0]
    torch.testing.assert_close(own_parameters, parameters, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*without a 'pyg-lib' installation")
def test_the_script_trains_alike_on_the_loader_of_pyg(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch-sparse, and the call that the README names; without it, the error names it."""
    use_samplers(monkeypatch)
    source = script("PyG", "after")
    counted = source.replace("(whole, 4)", "(wb.interop.count_hops(whole, 2), 4)")
    losses, parameters = trained("PyG", script("PyG", "before"), monkeypatch, pygs_own=True)
    ours, own_parameters = trained("PyG", counted, monkeypatch, pygs_own=True)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(losses), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(own_parameters, parameters, rtol=1e-4, atol=1e-6)
    assert "`wb.interop.count_hops(whole, 2)`" in README
    with pytest.raises(ValueError, match=r"pass workbench\.interop\.count_hops"):
        trained("PyG", source, monkeypatch, pygs_own=True)


def moved_into_the_loop(statement: str) -> Callable[[str], str]:
    """Move a statement from beside the loop over parts into it."""
    into = {"optimizer.step()": "loss.backward()", "optimizer.zero_grad()": "out = model"}[statement]

    def change(source: str) -> str:
        lines = [line for line in source.splitlines() if line.strip() != statement]
        at = next(number for number, line in enumerate(lines) if line.strip().startswith(into))
        indentation = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines.insert(at + (statement == "optimizer.step()"), indentation + statement)
        return "\n".join(lines)

    return change


def substituted(pattern: str, replacement: str) -> Callable[[str], str]:
    return lambda source: re.sub(pattern, replacement, source, flags=re.MULTILINE)


NORMALISED = "F.batch_norm(self.first(x, edge_index), None, None, training=True)"
MISTAKES: dict[str, Callable[[str], str]] = {
    "mean of each part": substituted(r', reduction="sum"\) / .*$', ")"),
    "divided by the part's seeds": substituted(r"/ len\(train_idx\)$", "/ len(out)"),
    "zero_grad in the loop": moved_into_the_loop("optimizer.zero_grad()"),
    "step in the loop": moved_into_the_loop("optimizer.step()"),
    "BatchNorm": substituted(r"self\.first\(x, edge_index\)", NORMALISED),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_mistakes_that_the_readme_lists_change_the_result(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = script("plain torch", "before"), script("plain torch", "after")
    wrong = MISTAKES[mistake](after)
    assert wrong != after
    expected = MISTAKES[mistake](before) if mistake == "BatchNorm" else before
    _, parameters = trained("plain torch", expected, monkeypatch)
    _, own_parameters = trained("plain torch", wrong, monkeypatch)
    assert float((own_parameters - parameters).norm() / parameters.norm()) > 1e-3
