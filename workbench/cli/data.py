"""`workbench data`: data sets by name."""

import argparse

from workbench.cli.tables import table


def add(areas: argparse._SubParsersAction) -> None:
    """Add the command to those of `workbench`."""
    data = areas.add_parser("data", help="data sets by name", description="Data sets by name.")
    verbs = data.add_subparsers(title="commands", required=True, metavar="COMMAND")
    root = argparse.ArgumentParser(add_help=False)
    root.add_argument("--root", help="data folder (default: WORKBENCH_DATA, else ~/.local/share/workbench)")

    what = "Sets that can be loaded from here, and others that are known with where they come from."
    show = verbs.add_parser("list", parents=[root], help="what is at hand and what is known", description=what)
    show.set_defaults(run=_list)

    what = "Sizes, degrees, clustering and reciprocity of a set; of a stand-in beside the original's published figures."
    info = verbs.add_parser("info", parents=[root], help="a set in figures", description=what)
    info.add_argument("name")
    info.add_argument("--scale", type=float, help="size of a synthetic-* set, in (0, 1] (default: its own)")
    info.add_argument("--seed", type=int, default=0, help="of a synthetic-* set, or of a split that is not public")
    info.set_defaults(run=_info)

    what = "Download an OGB node-property set into the data folder; the only command that uses the network."
    get = verbs.add_parser("get", parents=[root], help="download a set", description=what)
    get.add_argument("name")
    get.set_defaults(run=_get)


def _list(asked: argparse.Namespace) -> list[str]:
    from workbench.datasets.describe import listed
    from workbench.datasets.folders import data_folder

    folder = data_folder(asked.root)
    rows = [(row.name, row.here or f"no ({row.source})", row.what) for row in listed(folder)]
    return [f"data folder: {folder}", "", *table(("name", "here", "what"), rows)]


def _info(asked: argparse.Namespace) -> list[str]:
    from workbench.datasets.describe import describe, published_in, targets
    from workbench.datasets.load import load_dataset

    data = load_dataset(asked.name, root=asked.root, scale=asked.scale, seed=asked.seed)
    rows, source = describe(data), published_in(data.name)
    if not source:
        return [data.name, "", *table(("", ""), [row[:2] for row in rows])[2:]]
    aims = table(("", "target", "here", ""), targets(data, scale=asked.scale))
    return [data.name, "", *table(("", "here", "original"), rows), "", *aims, "", f"original: {source}"]


def _get(asked: argparse.Namespace) -> list[str]:
    from workbench.datasets.download import download
    from workbench.datasets.load import find_source

    target = download(asked.name, root=asked.root)
    source = find_source(asked.name, target.parent)
    note = f"{asked.name} is loaded from {source.location}, which comes first; move that away to load {target}"
    return [f"{asked.name} is in {target}", *([note] if source.kind != "OGB" else [])]
