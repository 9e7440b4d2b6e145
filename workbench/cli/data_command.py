"""`workbench data`: data sets by name."""

import click

from workbench.cli.command_group import write_lines
from workbench.cli.options import data_folder_option


@click.group()
def data() -> None:
    """List, inspect and download data sets."""


@data.command("list")
@data_folder_option
def list_datasets(root: str | None) -> None:
    """List the data sets that can be loaded here, and the sources of other known ones."""
    import pandas as pd

    from workbench.datasets.describe import listed
    from workbench.paths import data_folder
    from workbench.report.terminal import fitted_table, terminal_width

    folder = data_folder(root)
    rows = [(row.name, row.here or f"no ({row.source})", row.what) for row in listed(folder)]
    table = pd.DataFrame(rows, columns=["name", "available", "description"])
    write_lines([f"data folder: {folder}", "", *fitted_table(table, terminal_width())])


@data.command()
@click.argument("name")
@data_folder_option
@click.option(
    "--scale",
    type=float,
    show_default="the set's own",
    help="Size of a synthetic-* set, in (0, 1].",
)
@click.option("--seed", default=0, help="Seed of a synthetic-* set, and of the split of a set without a public one.")
def info(name: str, root: str | None, scale: float | None, seed: int) -> None:
    """Show sizes, degrees, clustering and reciprocity; for a stand-in beside the original's published figures."""
    import pandas as pd

    from workbench.datasets.describe import describe, published_in, targets
    from workbench.datasets.load import load_dataset
    from workbench.report.terminal import text_table

    dataset = load_dataset(name, root=root, scale=scale, seed=seed)
    figures, source = pd.DataFrame(describe(dataset), columns=["", "here", "original"]), published_in(dataset.name)
    if not source:
        return write_lines([dataset.name, "", *text_table(figures.drop(columns="original"), header=False)])
    aims = pd.DataFrame(targets(dataset, scale=scale), columns=["", "target", "here", ""])
    write_lines([dataset.name, "", *text_table(figures), "", *text_table(aims), "", f"original: {source}"])


@data.command("format")
def show_format() -> None:
    """Show the arrays of a data set of your own, NAME.npz in the data folder."""
    from workbench.datasets.archive import ARRAYS, KNOWLEDGE_GRAPH, OPTIONAL

    head = "Write NAME.npz into the data folder by numpy.savez; `workbench data info NAME` checks it. Its arrays:"
    arrays = [f"  {names}: {contents}" for names, contents in ARRAYS]
    write_lines([head, "", *arrays, "", f"{KNOWLEDGE_GRAPH} {OPTIONAL}"])


@data.command()
@click.argument("name")
@data_folder_option
def get(name: str, root: str | None) -> None:
    """Download an OGB node-property set into the data folder; no other command uses the network."""
    from workbench.datasets.load import find_source
    from workbench.datasets.ogb import download

    target = download(name, root=root)
    source = find_source(name, target.parent)
    lines = [f"{name} is in {target}"]
    if source.kind != "OGB":
        lines.append(f"{name} is loaded from {source.location}, which comes first; move that away to load {target}")
    write_lines(lines)
