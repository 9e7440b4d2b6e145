"""`workbench compare` and `workbench import`: runs that are kept."""

import argparse

from workbench.cli.tables import readable


def compare(asked: argparse.Namespace) -> list[str]:
    """Finished runs beside each other."""
    from workbench.tracking import compare as side_by_side
    from workbench.tracking.store import open_store

    if bad := [text for text in asked.where if "=" not in text]:
        raise ValueError(f"--where {bad[0]!r}: write KEY=VALUE, such as --where method=reg")
    where = dict(text.partition("=")[::2] for text in asked.where)
    store = open_store(asked.store)
    found = side_by_side.compare(store, sweep=asked.figure and _home(asked.figure), size=asked.size, where=where)
    if found.empty:
        return [
            "no finished runs like that"
            if where or asked.size or asked.figure
            else "no finished runs yet; try `workbench run`"
        ]
    if asked.columns:
        wanted, constant = asked.columns.split(","), found.attrs["constant"]
        if missing := [name for name in wanted if name not in found and name not in constant]:
            raise ValueError(f"there is no column {missing[0]!r}; choose from {', '.join([*found, *constant])}")
        found = found.assign(**{name: constant[name] for name in wanted if name not in found})[wanted]
    if asked.csv:
        found.to_csv(asked.csv, index=False)
        return [f"{len(found)} rows in {asked.csv}"]
    constant = ", ".join(f"{key} {value}" for key, value in found.attrs.get("constant", {}).items())
    return [*readable(found), *(["", f"in common: {constant}"] if constant else [])]


def log(asked: argparse.Namespace) -> list[str]:
    """Log the runs of a file."""
    from workbench.tracking.file_store import FileStore
    from workbench.tracking.record import FAILED, FINISHED
    from workbench.tracking.store import open_store, shown_uri

    if not asked.file.exists():
        raise FileNotFoundError(f"there is no file {asked.file}; runs are written to one by --store FILE.jsonl")
    store = open_store(asked.store)
    store.check()
    runs = FileStore(asked.file).runs(statuses=(FINISHED, FAILED))
    added = sum(store.add(run) for run in runs)
    return [f"{added} of {len(runs)} runs were new to {shown_uri(store.location)}"]


def _home(name: str) -> str:
    from workbench.experiment.load import load_experiment

    return load_experiment(name).sweep.name
