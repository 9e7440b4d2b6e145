"""`advise`: which of the ideas help a graph, a model and a machine, priced from counts before any training."""

import html
import re
import textwrap
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from workbench.advisor.configuration import CHANGES, INEXACT, SAME, Configuration
from workbench.advisor.counts import Counts, silent
from workbench.advisor.known_machines import DISK
from workbench.advisor.machine import HERE, Machine, resolve_machine
from workbench.advisor.prices import KAPPA, STAGES, Priced, Pricer
from workbench.advisor.script import training_script
from workbench.core.array_store import content_digest
from workbench.core.dataset import Dataset
from workbench.core.errors import CapacityError, available_bytes, check_at_least, check_bytes, check_type
from workbench.core.units import format_bytes
from workbench.datasets.load import loading_call
from workbench.memory.estimator import has_analytic_model
from workbench.memory.traced.dry_run import StepFailedError
from workbench.memory.training_setup import Backend, Optimizer
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.sampler import Sampler, check_sampler

if TYPE_CHECKING:
    import pandas as pd

_TIE = 0.03
"""Configurations within this share of the fastest are as good; the one with the fewest ideas is advised."""

MOST_DEVICES = 62
"""Devices that rows can be placed on."""

_KEPT = 4
_kept: "OrderedDict[str, Counts]" = OrderedDict()


def advise(
    data: Dataset,
    model: nn.Module,
    *,
    machine: Machine | str | None = None,
    sampler: Sampler | None = None,
    batch_size: int = 1024,
    memory: int | str | None = None,
    host_memory: int | str | None = None,
    devices: int = 1,
    optimizer: Optimizer = "adam",
    num_batches: int = 24,
    seed: int = 0,
    report: Callable[[str], object] = silent,
) -> "Advice":
    """Price every idea of the workbench, and the pairs that combine, for one's own data, model and machine.

        advice = wb.advise(data, model, sampler=wb.NeighborSampler([10, 25]), memory="8GiB", machine="A100")
        print(advice)
        Path("train.py").write_text(advice.code())

    A few dozen batches are sampled, partitioned and estimated, and a few steps of a copy of the model are timed;
    nothing is trained. What rows on a disk need is counted even if the features fit into the host's memory, so that
    another memory is priced quickly. What was counted is kept: another call with other budgets, devices or machine
    counts only what these ask for in addition, such as other micro-batches, or the batches of devices whose share of
    the seeds makes few.

    Args:
        data: graph, features, labels and training nodes.
        model: any module that `wb.train_step` can call; not changed.
        machine: a `Machine`, the name of a known one or a YAML file; None: this one, measured in up to 20 s.
        sampler: of the plain program; None: `wb.NeighborSampler` with ten neighbours per layer.
        batch_size: seeds per batch and device.
        memory: memory of a device, in bytes or as text such as "8GiB"; None: the machine's.
        host_memory: the host's memory for graph and rows; None: the machine's.
        devices: number of devices.
        optimizer: "adam", "adamw" or "sgd".
        num_batches: batches that are sampled of every way of sampling.
        seed: of the order of batches, and of partitions.
        report: called with what is being counted, one line each.

    Returns:
        The configurations with their prices, best first.

    Raises:
        TypeError: an argument of another type.
        ValueError: a data set without features or training nodes, fewer of these than devices, a number out of range,
            a model without initialised parameters to train, one that can't be called as `model(blocks, x)` for one
            tensor, or one of one's own that is not on a device of the machine's kind, where its memory is traced.
        CapacityError: parameters and gradients alone exceed `memory`, so no configuration can fit.
    """
    check_at_least("devices", devices, 1, most=MOST_DEVICES)
    chosen = resolve_machine(machine)
    if sampler is None:
        sampler = NeighborSampler([10] * len(getattr(model, "layers", (0, 0))))
    check_sampler(sampler)
    counts = _counts(data, model, sampler, batch_size, optimizer, num_batches, seed, report)
    pricer = Pricer(
        counts=counts.for_devices(devices),
        machine=chosen,
        memory_bytes=_budget("memory", memory, chosen.device_memory_bytes),
        host_bytes=_budget("host_memory", host_memory, chosen.host_memory_bytes),
        devices=devices,
        measured=machine in (None, HERE) or _is_here(chosen),
    )
    advice = _advice(pricer, report)
    with suppress(ValueError, CapacityError, NotImplementedError):  # what can't be counted can't be priced, then
        pricer.count_for_disk()
    return advice


def _advice(pricer: Pricer, report: Callable[[str], object] = silent) -> "Advice":
    _check_parameters(pricer)
    _check_estimable(pricer)
    report("pricing")
    try:
        candidates = [*pricer.candidates()]
    except StepFailedError as error:
        raise _with_own_remedy(error) from error
    priced = [pricer.price(configuration) for configuration in candidates]
    return Advice(pricer, tuple(ranked(priced)))


def _is_here(machine: Machine) -> bool:
    """Whether a machine is what this process measured, with any disk, so that steps can be timed.

    Others are told by their names, without measuring anything.
    """
    if not machine.name.startswith("this machine"):
        return False
    here = Machine.here()
    return replace(machine, **{name: getattr(here, name) for name in DISK}) == here


def _budget(name: str, given: int | str | None, known: int | None) -> int:
    if given is not None:
        return check_bytes(name, given)
    return available_bytes() if known is None else known


def _counts(
    data: Dataset,
    model: nn.Module,
    sampler: Sampler,
    batch_size: int,
    optimizer: Optimizer,
    num_batches: int,
    seed: int,
    report: Callable[[str], object],
) -> Counts:
    """Those of an earlier call with the same arguments, or new ones."""
    check_type("data", data, Dataset, 'pass wb.load_dataset("ogbn-arxiv"), or wb.Dataset.build(graph, x, y, …)')
    check_type("model", model, nn.Module, "pass the torch.nn.Module that is to be trained")
    _check_trainable(model)
    tensors = [(t.shape, t.dtype, t.device, t.requires_grad) for t in (data.x, data.y, *model.parameters())]
    held = content_digest({name: value for name, value in vars(sampler).items() if isinstance(value, torch.Tensor)})
    asked = (type(sampler), repr(sampler), held, batch_size, optimizer, num_batches, seed)  # repr abbreviates tensors
    key = repr((data.fingerprint, model, _settings(model), tensors, asked))
    if key not in _kept or not _have_same_batches(data, _kept[key].data):
        options = {"optimizer": optimizer, "num_batches": num_batches, "seed": seed, "report": report}
        _kept[key] = Counts(data, model, sampler, batch_size, **options)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]


def _settings(model: nn.Module) -> list[Any]:
    """Classes and attributes of all modules, of which the text of a model shows only some.

    A class that was defined anew, as in a notebook's cell that was run again, is another one.
    """
    own = vars(nn.Module()).keys() - {"training"}
    return [
        (type(module), id(type(module)), {name: value for name, value in vars(module).items() if name not in own})
        for module in model.modules()
    ]


def _check_trainable(model: nn.Module) -> None:
    name = type(model).__name__
    if any(map(nn.parameter.is_lazy, chain(model.parameters(), model.buffers()))):
        raise ValueError(f"{name} has uninitialised parameters; run one batch through it first")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(f"{name} has no trainable parameters; pass a model with a parameter that requires gradients")


_NOT_TAKEN = re.compile(r"(; add these parameters, or pass|\. Pass a loss) .*forward=.*", re.DOTALL)


def _with_own_remedy(error: StepFailedError) -> StepFailedError:
    """`advise` has neither `forward=` nor `loss_fn=`, which are the remedies elsewhere."""
    reason, found = _NOT_TAKEN.subn("", str(error))
    remedy = "wrap the model in a module called as (blocks, x) that returns one tensor"
    return StepFailedError(f"{reason}; {remedy}") if found else error


def _have_same_batches(data: Dataset, other: Dataset) -> bool:
    """Whether graph and training nodes are equal, and the call that loads them, which is written in programs.

    `dataclasses.replace` keeps the fingerprint of what it changes.
    """
    if loading_call(data) != loading_call(other):
        return False
    ours, theirs = ({**one.graph._tensors(), "train_idx": one.train_idx} for one in (data, other))
    return all(_are_equal(tensor, theirs[name]) for name, tensor in ours.items())


def _are_equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))


def _check_parameters(pricer: Pricer) -> None:
    """Refuse a budget that parameters, gradients and optimizer state exceed."""
    fixed = 2 * sum(parameter.nbytes for parameter in pricer.counts.model.parameters())
    if fixed > pricer.memory_bytes:
        raise CapacityError(
            f"parameters and gradients take {format_bytes(fixed)}, but memory is {format_bytes(pricer.memory_bytes)}; "
            "raise memory, or use narrower layers"
        )


def _check_estimable(pricer: Pricer) -> None:
    """Refuse a machine on which the model's memory can't be estimated from here, before anything is sampled."""
    model, here = pricer.counts.model, Backend.of(pricer.counts.model).device
    if not has_analytic_model(model) and here != pricer.device:
        raise ValueError(
            f"machine is {pricer.machine.name}, on whose devices ({pricer.device}) a step of {type(model).__name__} "
            f'must be traced, but the model is on {here}; move it, model.to("{pricer.device}"), ask about a machine '
            f"whose devices are of kind {here}, or use an unmodified model of wb.build_model"
        )


def ranked(priced: Sequence[Priced]) -> list[Priced]:
    """Configurations that fit, best first, then all others.

    Those that leave neighbours out come after the others that fit, as no count tells what accuracy they cost. The
    fastest is the best, or of those as fast the one that keeps the result and has the fewest ideas.
    """
    fitting = sorted((one for one in priced if one.fits), key=_rank)
    rest = sorted((one for one in priced if not one.fits), key=lambda one: (not one.can_be_priced, one.epoch_seconds))
    if fitting:
        alike = [one for one in fitting if _rank(one)[0] == _rank(fitting[0])[0]]
        as_fast = [one for one in alike if one.epoch_seconds <= (1 + _TIE) * fitting[0].epoch_seconds]
        best = min(as_fast, key=lambda one: (one.result != SAME, len(one.configuration.ideas)))
        fitting.remove(best)
        fitting.insert(0, best)
    return [*fitting, *rest]


def _rank(one: Priced) -> tuple[bool, float]:
    return one.configuration.leaves_neighbours_out, one.epoch_seconds


@dataclass(frozen=True, eq=False, repr=False)
class Advice:
    """Configurations with their prices, best first; printed, it is a table and what a colleague would say.

    Args:
        pricer: counts, machine and budgets.
        priced: all configurations, those that fit first.
    """

    pricer: Pricer
    priced: tuple[Priced, ...]

    @property
    def best(self) -> Priced:
        """The configuration advised.

        Raises:
            CapacityError: none fits; the message says what the least needs.
        """
        if not self.priced[0].fits:
            reasons = "; ".join(sorted({one.why for one in self.priced}))
            raise CapacityError(f"no configuration fits: {reasons}. Raise memory or host_memory, or lower batch_size")
        return self.priced[0]

    @property
    def choice(self) -> Mapping[str, Any]:
        return self.best.choice

    @property
    def predicted(self) -> Mapping[str, float]:
        return self.best.predicted

    @property
    def error(self) -> float:
        """Of the seconds; peaks and bytes are nearer."""
        return self.best.error

    @property
    def plain(self) -> Priced | None:
        """The configuration without ideas beyond the micro-batches that it needs, if it was priced."""
        simple = [one for one in self.priced if not one.configuration.ideas or _only_parts(one.configuration)]
        return simple[0] if simple else None

    @property
    def table(self) -> "pd.DataFrame":
        """One row per configuration, best first; bytes and seconds are per epoch."""
        import pandas as pd

        return pd.DataFrame([_row(one) for one in self.priced])

    def code(
        self,
        priced: Priced | None = None,
        *,
        data: str | None = None,
        model: str | None = None,
        sampler: str | None = None,
    ) -> str:
        """The program of a configuration, as a script.

        Args:
            priced: the configuration; None: the best.
            data: the expression that loads the data set; None: as `wb.load_dataset` was called for it.
            model: the expression that builds the model; None: `wb.build_model`, for a model that it built.
            sampler: the expression that builds the sampler; None: that of a sampler of the library. It is not used by
                a configuration with another sampler.

        Raises:
            TypeError: an argument of another type.
            ValueError: an expression is None, and there is no other way to get what it stands for.
            CapacityError: no configuration fits.
        """
        configuration = self._chosen(priced).configuration
        options = {"device": self.pricer.device, "data": data, "model": model, "sampler": sampler}
        return training_script(configuration, self.pricer.counts, **options)

    def _chosen(self, priced: Priced | None) -> Priced:
        if priced is None:
            return self.best
        check_type("priced", priced, Priced, "pass one of advice.priced, or None for the best")
        return priced

    def with_budgets(
        self,
        *,
        memory: int | str | None = None,
        host_memory: int | str | None = None,
        devices: int | None = None,
        machine: Machine | str | None = None,
    ) -> "Advice":
        """Price the same counts for other budgets.

        Args:
            memory: memory of a device, in bytes or as text; None: as before.
            host_memory: the host's memory for graph and rows; None: as before.
            devices: number of devices; None: as before.
            machine: another machine, as `advise` takes it; None: the same. Budgets do not change with it.

        Returns:
            Advice as `advise` would give it.

        Raises:
            TypeError: an argument of another type.
            ValueError: a number out of range, an unknown machine, or one on which the model's memory can't be traced.
            CapacityError: parameters and gradients alone exceed `memory`.
        """
        before = self.pricer
        asked = before.devices if devices is None else devices
        check_at_least("devices", asked, 1, most=MOST_DEVICES)
        chosen = before.machine if machine is None else resolve_machine(machine)
        return _advice(
            replace(
                before,
                counts=before.counts.for_devices(asked),
                machine=chosen,
                memory_bytes=_budget("memory", memory, before.memory_bytes),
                host_bytes=_budget("host_memory", host_memory, before.host_bytes),
                devices=asked,
                measured=before.measured if machine is None else _is_here(chosen),
            )
        )

    def explain(self, priced: Priced | None = None) -> "pd.DataFrame":
        """The terms of a price: seconds per epoch by stage, and bytes by link.

        Args:
            priced: the configuration; None: the best.

        Raises:
            TypeError: an argument of another type.
            ValueError: the configuration has no price.
            CapacityError: no configuration fits.
        """
        import pandas as pd

        one = self._chosen(priced)
        if not one.can_be_priced:
            raise ValueError(f"{one.configuration} {one.why}; pass one of advice.priced that has a price")
        seconds = [{"term": stage, "seconds": one.seconds[stage]} for stage in STAGES]
        links = [{"term": f"rows from {link}", "bytes": nbytes} for link, nbytes in one.link_bytes.items()]
        memory = [{"term": "peak of a device", "bytes": one.peak_bytes}, {"term": "host", "bytes": one.host_bytes}]
        return pd.DataFrame([*seconds, {"term": "epoch", "seconds": one.epoch_seconds}, *links, *memory])

    def sentences(self) -> list[str]:
        """What a colleague would say: where the time goes, what helps, and why each other idea does not."""
        return [self._headline(), *self._reasons()]

    def _headline(self) -> str:
        best, plain = self.best, self.plain
        stage = max(STAGES, key=lambda stage: best.seconds[stage])
        share = best.seconds[stage] / sum(best.seconds.values())
        uses = ", ".join(best.configuration.ideas) or "no idea beyond plain training"
        faster = ""
        if plain is not None and plain.fits and plain is not best:
            faster = f", {plain.epoch_seconds / best.epoch_seconds:.2f} times as fast as the plain program"
        text = (
            f"Use {uses}: {_seconds(best.epoch_seconds)} per epoch{faster}, within {format_bytes(best.peak_bytes)}; "
            f"{_DOES[stage]} {share:.0%} of the time."
        )
        same = [one for one in self.priced if one.fits and one.result == SAME]
        if best.result != SAME and same:
            seconds = _seconds(same[0].epoch_seconds)
            text += f" With the losses of the plain program: {same[0].configuration}, {seconds}."
        return text

    def _reasons(self) -> list[str]:
        best, found = self.best, []
        used = best.configuration
        ideas: dict[str, Callable[[Configuration], bool]] = {
            "micro-batches": lambda c: c.num_parts > 1,
            "LABOR": lambda c: c.labor,
            f"κ = {KAPPA}": lambda c: c.kappa > 1,
            "a cache on the device": lambda c: bool(c.cache),
            "reading from disk": lambda c: c.reading != "memory",
            "placement": lambda c: c.spread == "placement",
            "cooperation": lambda c: c.spread == "cooperation",
            "macrobatches": lambda c: c.spread == "owned" and c.window > 1,
        }
        for idea, uses in ideas.items():
            if uses(used):
                continue
            others = [one for one in self.priced if uses(one.configuration)]
            found.append(f"{idea}: {self._why_not(idea, others)}")
        return found

    def _why_not(self, idea: str, others: Sequence[Priced]) -> str:
        fitting = [one for one in others if one.fits]
        if fitting:
            first = min(fitting, key=lambda one: one.epoch_seconds)
            change = first.epoch_seconds / self.best.epoch_seconds - 1
            word = "slower" if change > 0 else "faster"
            changes = f", and {first.result}" if first.result != SAME else ""
            return f"{abs(change):.0%} {word} at best ({first.configuration}){changes}"
        if others:
            return others[0].why
        return self._not_offered(idea)

    def _not_offered(self, idea: str) -> str:
        pricer = self.pricer
        if idea == "micro-batches":
            return "not needed: every batch fits as a whole"
        if idea == "LABOR":
            return "the sampler given is not one that LABOR draws like"
        if idea.startswith("κ"):
            if not pricer.counts.can_depend:
                return "the sampler given does not draw dependent batches"
            return "helps only what remembers rows: a cache, or reading ahead"
        if idea == "reading from disk":
            return "not needed: the features fit into the host's memory"
        if idea == "a cache on the device":
            on_host = "the device is the CPU, which reads the host's memory"
            too_large = "the features that it would read do not fit into the host's memory"
            full = "no memory of the device is left for rows"
            return on_host if pricer.machine.is_cpu else full if pricer.features_fit else too_large
        if pricer.devices == 1:
            return "needs several devices"
        if not pricer.features_fit and idea != "macrobatches":
            return "the features that it would read do not fit into the host's memory"
        if idea == "cooperation" and not pricer.counts.sampler.rows_are_independent:
            return "the sampler given draws a batch's rows together"
        return "needs devices with memory of their own"

    def __str__(self) -> str:
        return advice_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return advice_html(self)


_DOES = {
    "sample": "sampling takes",
    "partition": "partitioning takes",
    "read": "reading features takes",
    "copy": "copying to the device takes",
    "exchange": "the exchange between devices takes",
    "compute": "the model takes",
}


def _only_parts(c: Configuration) -> bool:
    return replace(c, num_parts=1).ideas == ()


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value < 100 else f"{value / 60:.3g} min"


def _row(one: Priced) -> dict[str, Any]:
    c = one.configuration
    return {
        "configuration": str(c),
        "fits": one.fits,
        "peak_bytes": one.peak_bytes,
        "host_bytes": one.host_bytes,
        "moved_bytes": one.moved_bytes,
        "seconds": one.epoch_seconds,
        "error": one.error,
        "exact": one.result,
        **{f"{stage}_seconds": one.seconds.get(stage) for stage in STAGES},
        **{f"from_{link}_bytes": one.link_bytes.get(link) for link in ("disk", "host", "device", "peer", "rank")},
        "why": one.why,
    }


WIDTH = 80
_ROWS = 12
_LABEL = 30
_MARKS = {CHANGES: " *", INEXACT: " †", SAME: ""}
_NOTES = {
    CHANGES: f"* {CHANGES}: each step is another random estimate of the same gradient",
    INEXACT: f"† {INEXACT}: a layer such as BatchNorm looks across the batch that is split",
}


def advice_text(advice: Any, width: int = WIDTH, *, rows: int = _ROWS, more: str = "`advice.table` has all") -> str:
    """The table, best first, and the sentences.

    Args:
        advice: an `Advice`.
        width: columns of the terminal.
        rows: configurations shown.
        more: how to see the others.
    """
    shown = advice.priced[:rows]
    lines = _aligned([_HEAD, *(_cells(one) for one in shown)])
    hidden = len(advice.priced) - len(shown)
    lines += [f"and {hidden} more: {more}"] if hidden else []
    lines += _notes(shown)
    lines += ["", *textwrap.wrap(_about(advice.pricer), width), ""]
    first, *others = _sentences(advice)
    lines += textwrap.wrap(first, width)
    for reason in others:
        lines += textwrap.wrap(reason, width, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)


def advice_html(advice: Any) -> str:
    """The same for a notebook, with all configurations.

    Args:
        advice: an `Advice`.
    """
    rows = "".join(_html_row(_cells(one, label=str(one.configuration)), "td", one.why) for one in advice.priced)
    first, *others = map(html.escape, _sentences(advice))
    reasons = "".join(f"<li>{reason}</li>" for reason in others)
    return (
        f"<table><caption>{html.escape(_about(advice.pricer))}</caption><thead>{_html_row(_HEAD, 'th')}</thead>"
        f"<tbody>{rows}</tbody></table><p>{first}</p><ul>{reasons}</ul><p>{'<br>'.join(_notes(advice.priced))}</p>"
    )


def _notes(shown: Sequence[Priced]) -> list[str]:
    """What the marks mean that are shown."""
    results = {one.result for one in shown}
    return [note for result, note in _NOTES.items() if result in results]


def _html_row(cells: tuple[str, ...], tag: str, hover: str = "") -> str:
    title = f' title="{html.escape(hover)}"' if hover else ""
    return f"<tr{title}>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _about(pricer: Pricer) -> str:
    how = "timed on this machine" if pricer.measured else "modelled"
    budget = f"{format_bytes(pricer.memory_bytes)} of device memory, {format_bytes(pricer.host_bytes)} of host memory"
    return f"{pricer.machine.name or 'machine'}: {budget}; seconds per epoch, {how}."


def _sentences(advice: Any) -> list[str]:
    return advice.sentences() if advice.priced[0].fits else [f"Nothing fits: {advice.priced[0].why}."]


_HEAD = ("configuration", "fits", "peak", "moved", "seconds", "±")


def _cells(one: Priced, label: str = "") -> tuple[str, ...]:
    label = label or textwrap.shorten(str(one.configuration), _LABEL - 2, placeholder="…")
    label += _MARKS[one.result]
    if not one.can_be_priced:
        return label, "–", "–", "–", "–", "–"
    seconds, fits = f"{one.epoch_seconds:.3g}", "yes" if one.fits else "no"
    peak, moved = format_bytes(one.peak_bytes), format_bytes(round(one.moved_bytes))
    return label, fits, peak, moved, seconds, f"{one.error:.0%}"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """The first column on the left, all others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(cells))
        for cells in (zip(row, widths, strict=True) for row in rows)
    ]
