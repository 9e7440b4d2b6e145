"""`training_script`: a configuration as a program that runs as it is."""

import inspect
from collections.abc import Mapping
from textwrap import dedent, indent
from typing import Any

import torch
from torch import Tensor, nn

from workbench.advisor.configuration import Configuration
from workbench.advisor.counts import Counts, default_loss
from workbench.datasets.load import loading_call
from workbench.memory.training_setup import OPTIMIZERS
from workbench.nn.gat import GATLayer
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.gnn import GNN
from workbench.nn.model import build_model
from workbench.nn.rgcn import RGCNLayer
from workbench.nn.sage import SAGELayer


def training_script(
    c: Configuration,
    counts: Counts,
    *,
    device: str,
    data: str | None = None,
    model: str | None = None,
    sampler: str | None = None,
    epochs: int = 3,
) -> str:
    """Write the program of a configuration.

    Args:
        c: the configuration.
        counts: of its data set, model, sampler and batch size.
        device: "cpu" or "cuda".
        data: the expression that loads the data set; None: as `wb.load_dataset` was called for it.
        model: the expression that builds the model; None: `wb.build_model`, for a model that it built.
        sampler: the expression that builds the sampler; None: that of a sampler of the library.
        epochs: number of epochs.

    Raises:
        ValueError: an expression is None, and there is no other way to get what it stands for.
    """
    what = {
        "loss": default_loss(counts.data).__name__,
        "data": data or _dataset(counts),
        "model": model or _model(counts.model),
        "sampler": sampler if sampler and not (c.labor or c.kappa > 1) else _sampler(c, counts),
    }
    write = _on_ranks if c.devices > 1 else _in_one_process
    return write(c, counts, device, epochs, what)


def _dataset(counts: Counts) -> str:
    call = loading_call(counts.data)
    if call is None:
        remedy = 'pass data=, the expression that makes it, such as code(data="my_data()")'
        raise ValueError(f"the data set {counts.data.name} was not returned by wb.load_dataset; {remedy}")
    return call


def _model(model: nn.Module) -> str:
    """`build_model` with the options of a model that it built."""
    options = _options(model) if isinstance(model, GNN) and len(model.layers) else None
    if options is None or not _are_alike(build_model(**options), model):
        remedy = 'pass model=, the expression that builds it, such as code(model="MyModel(128, 40)")'
        raise ValueError(f"{type(model).__name__} is not a model of wb.build_model; {remedy}")
    kind, *others = options.items()
    built = f"wb.build_model({kind[1]!r}, {', '.join(f'{name}={value!r}' for name, value in others)})"
    dtype = next(model.parameters()).dtype
    return built if dtype == torch.float32 else f"{built}.to({dtype})"


def _options(model: GNN) -> dict[str, Any] | None:
    """The options that `build_model` was called with if it built a model; None: it has no such layers."""
    first: Any = model.layers[0]
    last: Any = model.layers[-1]
    names = {GCNLayer: "gcn", GINLayer: "gin", GATLayer: "gat", RGCNLayer: "rgcn"}
    kind = (
        f"sage-{first.aggregator}"
        if isinstance(first, SAGELayer)
        else next((name for layer, name in names.items() if isinstance(first, layer)), None)
    )
    if kind is None:
        return None
    options: dict[str, Any] = {"kind": kind, "in_dim": input_dim(first), "hidden_dim": output_dim(first)}
    options |= {"out_dim": output_dim(last), "num_layers": len(model.layers)}
    dropout: Any = next((each for each in model.dropouts if getattr(each, "p", 0.0)), None)
    options |= {"dropout": dropout.p} if dropout is not None else {}
    norms = {nn.BatchNorm1d: "batch", nn.LayerNorm: "layer"}
    options |= {"norm": norms[type(model.norms[0])]} if len(model.norms) and type(model.norms[0]) in norms else {}
    more = {"gat": ("heads", "self_attention"), "rgcn": ("num_relations", "num_bases", "regularizer")}
    options |= {name: getattr(first, name) for name in more.get(kind, ())}
    seed = getattr(model.dropouts[0], "seed", 0) if len(model.dropouts) else 0
    options |= {"seed": seed} if seed else {}
    return options | ({"reuse_buffers": True} if model.workspace is not None else {})


def _are_alike(one: nn.Module, other: nn.Module) -> bool:
    shapes = [{name: tensor.shape for name, tensor in each.state_dict().items()} for each in (one, other)]
    return repr(one) == repr(other) and shapes[0] == shapes[1]


def input_dim(layer: Any) -> int:
    """Channels that a layer reads."""
    return int(layer.mlp[0].in_features) if isinstance(layer, GINLayer) else layer.in_dim  # pyright: ignore


def output_dim(layer: Any) -> int:
    """Channels that a layer writes."""
    if isinstance(layer, GINLayer):
        return int(layer.mlp[-1].out_features)  # pyright: ignore
    if isinstance(layer, GATLayer):
        return layer.head_dim * (layer.heads if layer.concat else 1)
    return layer.out_dim


def _sampler(c: Configuration, counts: Counts) -> str:
    """A sampler of the library, with the options that are not its class's defaults."""
    sampler = counts.variant(labor=c.labor, kappa=c.kappa)
    remedy = 'pass sampler=, the expression that builds it, such as code(sampler="MySampler([10, 25])")'
    if not type(sampler).__module__.startswith("workbench."):
        raise ValueError(f"{type(sampler).__name__} is not a sampler of the workbench; {remedy}")
    first, *others = (
        (option, getattr(sampler, option.name)) for option in inspect.signature(type(sampler)).parameters.values()
    )
    changed = {option.name: value for option, value in others if not _is(option.default, value)}
    tensors = [name for name, value in changed.items() if isinstance(value, Tensor)]
    if tensors:
        raise ValueError(f"{tensors[0]} of {type(sampler).__name__} can't be written as text; {remedy}")
    written = [f"{name}={'wb.' if name == 'dependence' else ''}{_plain(value)!r}" for name, value in changed.items()]
    return f"wb.{type(sampler).__name__}({', '.join([repr(_plain(first[1])), *written])})"


def _is(default: Any, value: Any) -> bool:
    return value is default or (not isinstance(value, Tensor) and value == default)


def _plain(value: Any) -> Any:
    """Fanouts as lists and dicts."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def _optimizer(counts: Counts) -> str:
    return f"torch.optim.{OPTIMIZERS[str(counts.optimizer)].__name__}(model.parameters())"


def _head(c: Configuration, what: dict[str, str], extra: str = "") -> str:
    uses = f": {c}" if c.ideas else ""
    return dedent(f'''\
        """Trains with the configuration that wb.advise chose{uses}."""

        {extra}import torch
        from torch.nn.functional import {what["loss"]}

        import workbench as wb
        ''').replace("        ", "")


def _needed(c: Configuration, device: str) -> list[str]:
    """Lines that end a program for GPUs on a machine without them."""
    if device == "cpu":
        return []
    lacks = f"needs {c.devices} CUDA device{'s' if c.devices > 1 else ''}; without a machine, wb.advise is for this one"
    return [f"if torch.cuda.device_count() < {c.devices}:", f'    raise SystemExit("{lacks}")', ""]


def _in_one_process(c: Configuration, counts: Counts, device: str, epochs: int, what: dict[str, str]) -> str:
    on_disk = c.reading != "memory"
    moved = "" if device == "cpu" else f'.to("{device}")'
    lines = [
        _head(c, what, "from pathlib import Path\nfrom tempfile import mkdtemp\n\n" if on_disk else ""),
        *_needed(c, device),
        f"data = {what['data']}",
        f"model = {what['model']}{moved}",
        f"optimizer = {_optimizer(counts)}",
        f"sampler = {what['sampler']}",
    ]
    step = _step(c)
    if c.reading == "buffer":
        lines += _buffer(c, counts, step)
    else:
        lines += [*_store(c, counts, f'"{device}"'), "y = data.y", *_loader(counts), *_loop(c, counts, device, step)]
    lines += [
        "",
        "",
        f"for number in range({epochs}):",
        "    losses = torch.stack([*epoch(number)])",
        '    print(f"epoch {number}: loss {losses.mean():.3f}")',
        "",
    ]
    return "\n".join(lines)


def _loader(
    counts: Counts, ids: str = "data.train_idx", batch_size: int | None = None, graph: str = "data.graph"
) -> list[str]:
    """Lines that define `loader`."""
    size = counts.batch_size if batch_size is None else batch_size
    return [f"loader = wb.batches({graph}, {ids}, sampler=sampler, batch_size={size}, seed={counts.seed})"]


def _step(c: Configuration) -> str:
    return f"micro = mb.split(wb.partition_batch(mb, min({c.num_parts}, mb.num_seeds)))\n" if c.num_parts > 1 else ""


def _store(c: Configuration, counts: Counts, device: str) -> list[str]:
    """Lines that define `x`, the features as the program reads them from an expression of its device."""
    rows = ", rows=probability.argsort(descending=True)" if "static" in (c.cache, c.reading) else ""
    before = _access_probability(counts) if rows else []
    if c.cache:
        cached = f'wb.MemoryRows(data.x), {c.cached_rows}, policy="{c.cache}", device={device}{rows}'
        return [*before, f"x = wb.CachedRows({cached})"]
    if c.reading == "memory":
        return ["x = data.x"]
    lines = [
        'folder = Path(mkdtemp()) / "x"  # on the disk to read from',
        "wb.MappedRows.create(folder, data.x)  # once",
        f"x = wb.DiskRows(folder, gap_bytes={c.gap_bytes})",
    ]
    cached = [*before, f'x = wb.CachedRows(x, {c.held_rows}, policy="static"{rows})']
    return [*lines, *(cached if c.reading == "static" else [])]


def _access_probability(counts: Counts) -> list[str]:
    """Lines that define `probability`, how likely a batch reads each row, as `Counts.access_probability` does."""
    if counts.fanouts is not None:
        return [
            "probability = wb.placement.inclusion_probability(",
            f"    data.graph, data.train_idx, fanouts=sampler.fanouts, batch_size={counts.batch_size}",
            ")",
        ]
    number = len(counts.sampled().batches)
    return [
        *_loader(counts),
        f"read = torch.cat([mb.node_ids for _, mb in loader.steps({number})])",
        f"probability = torch.bincount(read, minlength=data.graph.num_nodes).double() / {number}",
    ]


def _loop(c: Configuration, counts: Counts, device: str, step: str) -> list[str]:
    train = "wb.train_step(model, {}, {}, {}, " + default_loss(counts.data).__name__ + ", optimizer)"
    batch = "micro" if step else "mb"
    body = indent(step, "        ")
    if c.reading in ("belady", "packed"):
        memory = c.held_rows * counts.row_bytes
        ahead = f"memory={memory}, group={c.group}"
        ahead += f", window={c.window}" if c.reading == "belady" else ""
        packed = (
            [
                '    packed = folder.with_name("packed")',
                f"    rows = wb.outofcore.pack_rows(packed, loader.epoch(number), x, overwrite=True, {ahead})",
            ]
            if c.reading == "packed"
            else []
        )
        rows = "rows" if c.reading == "packed" else "x"
        return [
            "",
            "",
            "def epoch(number):",
            *packed,
            f"    ahead = wb.outofcore.read_ahead(loader.epoch(number), {rows}, {ahead})",
            "    for _, mb, held in ahead:",
            f"{body}        yield {train.format(batch, 'held', 'y')}",
        ]
    if not c.prefetched:
        return [
            "",
            "",
            "def epoch(number):",
            "    for _, mb in loader.epoch(number):",
            f"{body}        yield {train.format(batch, 'x', 'y')}",
        ]
    return [
        "",
        "",
        "def epoch(number):",
        "    fetched = wb.training.fetch_rows(loader.epoch(number), x, y)",
        f'    for _, item in wb.prefetch(fetched, depth={c.prefetched - 1}, device="{device}"):',
        f"        yield {train.format('item.batch', 'item.x', 'item.y')}",
    ]


def _buffer(c: Configuration, counts: Counts, step: str) -> list[str]:
    train = default_loss(counts.data).__name__
    batch = "micro" if step else "mb"
    return [
        "store = wb.outofcore.PartitionStore.build(",
        '    Path(mkdtemp()) / "store", data.graph, rows=data.x, train_idx=data.train_idx, '
        f"num_partitions={c.partitions}, seed={counts.seed}",
        ")",
        "y, ids = data.y[store.node_ids], torch.isin(store.node_ids, data.train_idx).nonzero()[:, 0]",
        f"sizes = {c.partitions}, {c.capacity}, store.num_train_partitions",
        f"order = lambda number: wb.outofcore.node_order(*sizes, seed={counts.seed}, epoch=number)",
        f"buffer = wb.outofcore.PartitionBuffer(store, capacity={c.capacity})",
        "loader = wb.outofcore.batches(",
        f"    buffer, order, ids, sampler=sampler, batch_size={counts.batch_size}, seed={counts.seed}",
        ")",
        "",
        "",
        "def epoch(number):",
        "    for state, _, mb in loader.epoch(number):",
        indent(f"{step}yield wb.train_step(model, {batch}, state.rows, y, {train}, optimizer)", " " * 8),
    ]


def _on_ranks(c: Configuration, counts: Counts, device: str, epochs: int, what: dict[str, str]) -> str:
    """A program whose ranks are started by `run_ranks`, one per device."""
    cuda = device == "cuda"
    cooperating = c.spread == "cooperation"
    batch = counts.batch_size * (c.devices if cooperating else 1)
    lines = [
        _head(
            c, what, "from pathlib import Path\n" + "from tempfile import mkdtemp\n" * (c.reading != "memory") + "\n"
        ),
        *_needed(c, device),
        "",
        "def train(config):",
        "    rank, world = wb.distributed.get_rank(), wb.distributed.get_world_size()",
        f"    data = {what['data']}",
        f"    model = {what['model']}" + ('.to(f"cuda:{rank}")' if cuda else ""),
        f"    optimizer = {_optimizer(counts)}",
        f"    sampler = {what['sampler']}",
    ]
    if cooperating:
        lines += [
            f'    owner = wb.partition_graph(data.graph, world, method="random", seed={counts.seed})',
            "    owned = wb.sampling.OwnedGraph.of(data.graph, owner, rank, world)",
            "    sampler = wb.cooperative.CooperativeSampler(sampler, owned)",
            "    ids, x = data.train_idx, data.x",
        ]
    else:
        lines += [
            "    ids = data.train_idx[rank::world]",
            "    ids = ids[: len(data.train_idx) // world]  # equally many on all ranks",
        ]
    if c.spread == "alone":
        lines += [f"    {line}" for line in _store(c, counts, 'f"cuda:{rank}"' if cuda else '"cpu"')]
    if c.spread == "placement":
        device = ', device=f"cuda:{rank}"' if cuda else ""
        lines += [
            *(f"    {line}" for line in _access_probability(counts)),
            "    placement = wb.placement.place_rows(",
            f"        probability, num_devices=world, rows_per_device={c.placed_rows}, peer_cost={c.peer_cost:.4g}",
            "    )",
            f"    x = wb.placement.PlacedRows(placement, rank, host=wb.MemoryRows(data.x){device})",
        ]
    if c.spread == "owned":
        lines += [
            f'    owner = wb.partition_graph(data.graph, world, method="random", seed={counts.seed})',
            "    x = wb.distributed.OwnedRows.of(data.x, owner)",
        ]
    parts = f"mb.split(wb.partition_batch(mb, min({c.num_parts}, mb.num_seeds)))" if c.num_parts > 1 else "mb"
    train = f"wb.cooperative.train_step(model, {parts}, rows, data.y, {what['loss']}, optimizer)"
    if c.spread in ("placement", "owned"):
        loop = [
            f"        for window in wb.windows(loader, size={max(1, c.window)}):",
            "            rows = wb.stage(x, window)",
            "            for _, mb in window:",
            f"                total += float({train})",
        ]
    else:
        loop = ["        rows = x", "        for _, mb in loader:", f"            total += float({train})"]
    lines += [
        *(f"    {line}" for line in _loader(counts, "ids", batch, "owned.graph" if cooperating else "data.graph")),
        f"    for number in range({epochs}):",
        "        total = 0.0",
        *loop,
        '        yield {"epoch": number, "loss": total / len(loader)}',
        "",
        "",
        'if __name__ == "__main__":',
        f'    backend = "{"cpu:gloo,cuda:nccl" if cuda else "gloo"}"',
        f'    for row in wb.run_ranks(f"{{Path(__file__).stem}}:train", {{}}, {c.devices}, backend=backend):',
        "        print(f\"epoch {row['epoch']}: loss {row['loss']:.3f}\")",
        "",
    ]
    return "\n".join(lines)
