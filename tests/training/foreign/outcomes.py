"""The page of outcomes, docs/layers.md: `python -m tests.training.foreign.outcomes` writes what `check_exact` says."""

import warnings
from dataclasses import replace
from pathlib import Path

from tests.training.foreign import dgl_cases, pyg_cases
from tests.training.foreign.cases import Case
from tests.training.foreign.detection import DENSITIES, batch_of, detect
from tests.training.foreign.lazy import Lazy

PAGE = Path(__file__).parents[3] / "docs" / "layers.md"
LIBRARIES = {
    "dgl": ("DGL 1.1.3", dgl_cases.cases(Lazy("dgl.nn"))),
    "pyg": ("PyG 2.8", pyg_cases.cases(Lazy("torch_geometric.nn"))),
}
HEAD = """# Layers of DGL and PyG in micro-batches

Gradients accumulated over micro-batches equal those of the whole batch if a node's output depends on its neighbourhood
alone. These tables state what `workbench.check_exact(model, batch)` says of every layer and normalization, on batches
of dense and of sparse graphs; `tests/training/foreign/` compares it with measured gradients, and on five real graphs.

- *exact*: outputs and gradients of the parts equal the whole batch's to 10⁻⁸ in float64 (10⁻⁵ in float32).
- *warned*: they differ. `check_exact` names the module, which may be one inside the layer, and `train_step`,
  `accumulate` and `micro_batches(…, model=…)` warn of it before the first step.
- *not applicable*, with the reason.

`check_exact` says *undecided*, without a warning, where an inexact layer can't make a difference: in a
batch whose seeds share no nodes, or whose parts have the rows of all nodes that they read. With `cached=True` a layer
uses the edges of its first batch for all others; it is refused, and warned of.

PyG's layers are exact in both forms, `adjs` and `edge_index` (`batch.to_pyg(form="edge_index")`, `NeighborLoader`).

## Symmetric normalization

`GraphConv` and `GCNConv` divide by degrees counted within the batch, and those of a part differ. Let the edges carry
the whole batch's normalization; parts carry edge weights:

- DGL: `batch = wb.nn.symmetric_norm(wb.MiniBatch.from_dgl(blocks))`, layers `GraphConv(…, norm="none")`, called with
  `edge_weight=block.edata["edge_weight"]`. The result equals that of `norm="both"` on the whole batch.
- PyG: before the split `_, batch.edge_weight = gcn_norm(batch.edge_index, None, len(batch.n_id),
  add_self_loops=False)`, layers `GCNConv(…, normalize=False)`, called with `part.edge_weight`. The result equals that
  of `add_self_loops=False` on the whole batch; put self loops into the graph.

## Attention to the node itself

DGL's `GATConv` attends to in-neighbours alone, and asks for self loops in the graph; sampled with a fanout, a node may
then miss its own. `wb.build_model("gat", heads=10, self_attention=True)` attends to the node itself in every sample,
as the layer's paper and MariusGNN's artifact do: one more in-edge of weight 1 per destination. Hidden layers
concatenate their heads, the last one averages them. Its memory is estimated with the edges that it adds.
"""
OTHERS = """
## Other modules of DGL

Not applicable, because they are no layers over sampled neighbours:

"""


def page(libraries: dict[str, tuple[str, dict[str, list[Case]]]] = LIBRARIES) -> str:
    """The text of the page.

    Args:
        libraries: title and cases by library, with the outcomes to be stated.
    """
    tables = "".join(_section(title, cases) for title, cases in libraries.values())
    return (
        HEAD + tables + OTHERS + "".join(f"- `dgl.nn.{name}`: {why}\n" for name, why in dgl_cases.OTHER_MODULES.items())
    )


def _section(title: str, cases: dict[str, list[Case]]) -> str:
    rows = [_row(name, case) for name in sorted(cases, key=str.lower) for case in cases[name]]
    return f"\n## {title}\n\n| class | options | outcome |\n|---|---|---|\n" + "".join(rows)


def _row(name: str, case: Case) -> str:
    outcome = case.outcome if case.is_run else f"not applicable: {case.outcome}"
    outcome += f", names `{case.named}`" if case.named else ""
    return f"| `{name}` | {f'`{case.options}`' if case.options else ''} | {outcome} |\n"


def detected(library: str, name: str, case: Case) -> Case:
    """The case with what `check_exact` says on batches of all densities, in all forms that the layer takes."""
    if not case.is_run:
        return case
    said = set()
    for density in DENSITIES:
        for merged in (False, True) if library == "pyg" else (case.merged,):
            result = detect(library, case, batch_of(density, merged=merged), merged=merged).result
            outcome = {True: "exact", False: "warned", None: "undecided"}[result.exact]
            said.add((outcome, "" if result.kind == name else result.kind))
    outcomes, kinds = zip(*sorted(said), strict=True)
    return replace(case, outcome=" or ".join(dict.fromkeys(outcomes)), named=" or ".join(filter(None, kinds)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = {
        library: (title, {name: [detected(library, name, case) for case in listed] for name, listed in cases.items()})
        for library, (title, cases) in LIBRARIES.items()
    }
    PAGE.write_text(page(found), encoding="utf-8")
