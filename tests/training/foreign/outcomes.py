"""The page of outcomes, docs/layers.md: `python -m tests.training.foreign.outcomes` writes it."""

from pathlib import Path

from tests.training.foreign import dgl_cases, pyg_cases
from tests.training.foreign.cases import Case
from tests.training.foreign.lazy import Lazy

PAGE = Path(__file__).parents[3] / "docs" / "layers.md"
LIBRARIES = {
    "dgl": ("DGL 1.1.3", dgl_cases.cases(Lazy("dgl.nn"))),
    "pyg": ("PyG 2.8", pyg_cases.cases(Lazy("torch_geometric.nn"))),
}
HEAD = """# Layers of DGL and PyG in micro-batches

Gradients accumulated over micro-batches equal those of the whole batch if a node's output depends on its neighbourhood
alone. These tables state for every layer and normalization whether that is so; `tests/training/foreign/` runs each.

- *exact*: outputs and gradients of the parts equal the whole batch's to 10⁻¹⁰ in float64.
- *warned*: they differ. `workbench.check_exact(model, batch)` names the module, and `train_step`, `accumulate` and
  `micro_batches(…, model=…)` warn of it before the first step.
- *not applicable*, with the reason.

PyG's layers are exact in both forms, `adjs` and `edge_index` (`batch.to_pyg(form="edge_index")`, `NeighborLoader`).

## Symmetric normalization

`GraphConv` and `GCNConv` divide by degrees counted within the batch, and those of a part differ. Let the edges carry
the whole batch's normalization; parts carry edge weights:

- DGL: `batch = wb.symmetric_norm(wb.MiniBatch.from_dgl(blocks))`, layers `GraphConv(…, norm="none")`, called with
  `edge_weight=block.edata["edge_weight"]`. The result equals that of `norm="both"` on the whole batch.
- PyG: before the split `_, batch.edge_weight = gcn_norm(batch.edge_index, None, len(batch.n_id),
  add_self_loops=False)`, layers `GCNConv(…, normalize=False)`, called with `part.edge_weight`. The result equals that
  of `add_self_loops=False` on the whole batch; put self loops into the graph.
"""
OTHERS = """
## Other modules of DGL

Not applicable, because they are no layers over sampled neighbours:

"""


def page() -> str:
    """The text of the page."""
    tables = "".join(_section(title, cases) for title, cases in LIBRARIES.values())
    return (
        HEAD + tables + OTHERS + "".join(f"- `dgl.nn.{name}`: {why}\n" for name, why in dgl_cases.OTHER_MODULES.items())
    )


def _section(title: str, cases: dict[str, list[Case]]) -> str:
    rows = [_row(name, case) for name in sorted(cases, key=str.lower) for case in cases[name]]
    return f"\n## {title}\n\n| class | options | outcome |\n|---|---|---|\n" + "".join(rows)


def _row(name: str, case: Case) -> str:
    outcome = case.outcome if case.is_run else f"not applicable: {case.outcome}"
    return f"| `{name}` | {f'`{case.options}`' if case.options else ''} | {outcome} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
