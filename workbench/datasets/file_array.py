"""`FileArray`: an array as it is in a file; dtype, shape and values are checked before anything is converted.

A conversion hides what it can't represent: 2⁶⁴ − 1 becomes −1, 0.5 becomes 0, 1e300 becomes infinity. So every array
that comes from a file, whatever the format, passes through one of these methods first.
"""

from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import INT64_MAX, DataError, check_finite

_INTEGER, _REAL = "iu", "biuf"
Shape = tuple[int | None, ...]


class FileArray:
    """An array of a file, and the checks that turn it into a tensor.

    Args:
        file: path of the file, for messages.
        key: name of the array in the file, for messages.
        values: the array, as stored.
    """

    def __init__(self, file: Path, key: str, values: np.ndarray) -> None:
        self.file, self.key, self.values = file, key, values

    def fail(self, problem: str) -> NoReturn:
        """Raise a `DataError` that names file and key."""
        raise DataError(f"{self.file}: {self.key}{'' if problem.startswith('[') else ' '}{problem}")

    def count(self, minimum: int = 0) -> int:
        """Return one integer of at least `minimum`."""
        values = self.values
        if values.shape != () or values.dtype.kind not in _INTEGER:
            self.fail(
                f"has dtype {values.dtype} and shape {values.shape}; it must be one integer: {self.key}=np.int64(…)"
            )
        if not minimum <= int(values) <= INT64_MAX:
            self.fail(f"is {values}; it must be at least {minimum}" + " and below 2**63" * (int(values) > INT64_MAX))
        return int(values)

    def integers(self, shape: Shape, *, minimum: int = -INT64_MAX - 1, limit: int = INT64_MAX + 1) -> Tensor:
        """Return integers as int32, if they are stored so, or as int64.

        Args:
            shape: required shape; None: any length.
            minimum: inclusive lower bound.
            limit: exclusive upper bound.

        Raises:
            DataError: another dtype or shape, or a value out of range.
        """
        values = self.values
        if values.dtype.kind not in _INTEGER:
            self.fail(f"has dtype {values.dtype}; it must contain integers{self._integer_remedy()}")
        self._check_shape(shape)
        if values.size and not (minimum <= int(values.min()) and int(values.max()) < limit):
            position = _first((values < minimum) | (values >= limit))
            self.fail(f"{position} is {values[tuple(position)]}; it must be in [{minimum}, {limit})")
        return _tensor(values, np.int32 if values.dtype.newbyteorder("=") == np.int32 else np.int64)

    def ids(self, shape: Shape, limit: int) -> Tensor:
        """Return integers in [0, limit), as `integers` does."""
        return self.integers(shape, minimum=0, limit=limit)

    def node_ids(self, num_nodes: int) -> Tensor:
        """Return the distinct nodes of a part of a split, int64 [any]; a mask is refused as such.

        Args:
            num_nodes: exclusive upper bound.

        Raises:
            DataError: no vector of integers, an id out of range, a repeated id, or a mask.
        """
        values, as_ids = self.values, f"save its node ids, np.flatnonzero({self.key})"
        if values.ndim == 2 and num_nodes in values.shape and values.size != num_nodes:
            self.fail(
                f"has dtype {values.dtype} and shape {list(values.shape)}; it must be a vector of node ids: save masks "
                "of several splits as train_masks, val_masks, test_masks, [splits, num_nodes]"
            )
        if values.dtype == np.bool_ and values.shape == (num_nodes,):
            self.fail(f"has dtype bool, a mask; it must contain node ids: {as_ids}")
        ids = self.ids((None,), num_nodes).to(torch.int64)
        distinct, counts = np.unique(values, return_counts=True)
        if len(distinct) == len(values):
            return ids
        if len(values) == num_nodes and distinct[-1] <= 1:
            self.fail(f"has {num_nodes} values of 0 and 1, a mask; it must contain node ids: {as_ids}")
        repeated = distinct[counts > 1][0]
        at = np.flatnonzero(values == repeated)[:2].tolist()
        self.fail(f"contains {repeated} more than once, at {at}; save each node once: np.unique({self.key})")

    def flags(self, shape: Shape) -> Tensor:
        """Return masks, bool: those stored as bool, or as integers that are 0 or 1."""
        values = self.values
        if values.dtype.kind not in "biu":
            self.fail(f"has dtype {values.dtype}; it must be bool: save {self.key}.astype(bool) if it is a mask")
        self._check_shape(shape)
        if values.dtype != np.bool_ and values.size and (bad := values.astype(np.uint64) > 1).any():
            position = _first(bad)
            self.fail(f"{position} is {values[tuple(position)]}; a mask contains 0 and 1, or bool")
        return _tensor(values, np.bool_)

    def numbers(self, shape: Shape) -> Tensor:
        """Return finite numbers, float32."""
        values = self.values
        if values.dtype.kind not in _REAL:
            self.fail(f"has dtype {values.dtype}; it must contain numbers: save {self.key}.astype(np.float32)")
        self._check_shape(shape)
        with np.errstate(over="ignore"):
            converted = _tensor(values, np.float32)
        try:
            check_finite(self.key, converted)
        except ValueError:
            position = _first(~np.isfinite(converted.numpy()))
            value = values[tuple(position)]
            remedy = " in float32: scale it" if np.isfinite(value) else ": replace or drop such values"
            self.fail(f"{position} is {value}; it must be finite{remedy}")
        return converted

    def labels(self, num_nodes: int, num_classes: int | None = None) -> Tensor:
        """Return classes or several labels per node: int64 [num_nodes] or float32 [num_nodes, labels].

        Classes are integers, or floats that are whole numbers, [num_nodes] or [num_nodes, 1]; −1 and, as in OGB, NaN
        are nodes without a label. A wider matrix has several labels per node, each 0 or 1.

        Args:
            num_classes: number of classes, or of labels per node; None: any.

        Raises:
            DataError: another dtype or shape; a class that is not whole or out of range; a label that is neither 0 nor
                1; or a matrix with exactly one 1 in every row, which may be classes in one-hot form or several labels.
        """
        values = self.values
        if values.dtype.kind not in _REAL:
            remedy = f": number the classes with names, y = np.unique({self.key}, return_inverse=True)"
            self.fail(f"has dtype {values.dtype}; it must contain class ids{remedy}")
        if values.shape in ((num_nodes,), (num_nodes, 1)):
            return self._classes(num_classes)
        if values.ndim != 2 or values.shape[0] != num_nodes or not values.shape[1]:
            self.fail(
                f"has shape {list(values.shape)}; it must be [{num_nodes}], a class per node, or [{num_nodes}, any], "
                f"several labels per node{self._shape_remedy((num_nodes, None))}"
            )
        return self._several_labels(num_classes)

    def _classes(self, num_classes: int | None) -> Tensor:
        values = self.values
        kind, limit = values.dtype.kind, INT64_MAX if num_classes is None else num_classes
        if kind == "b":
            values = values.astype(np.int8)
        elif kind == "f":
            unlabelled = np.isnan(values)
            whole = np.where(unlabelled, -1, values)
            exact = 2 ** (np.finfo(values.dtype).nmant + 1)  # above it, whole numbers have been rounded
            if (bad := (whole != np.floor(whole)) | (np.abs(whole) > min(exact, 2**53))).any():
                position = _first(bad)
                self.fail(
                    f"{position} is {values[tuple(position)]}; classes are whole numbers, -1 or NaN without a label "
                    "(targets of a regression are not supported)"
                )
            values = whole.astype(np.int64)
        elif kind == "u" and values.size and (top := np.iinfo(values.dtype).max) in values and top - 1 not in values:
            position = _first(values == top)
            self.fail(
                f"{position} is {top}, which is -1 in {values.dtype}; save {self.key} as int64, with -1 for nodes "
                "without a label, and classes numbered without gaps"
            )
        checked = FileArray(self.file, self.key, values)
        return checked.integers(values.shape, minimum=-1, limit=limit).to(torch.int64).reshape(-1)

    def _several_labels(self, num_classes: int | None) -> Tensor:
        values = self.values
        if num_classes not in (None, values.shape[1]):
            self.fail(f"has {values.shape[1]} labels per node; it must have one per class, and there are {num_classes}")
        ones = values == 1
        if (bad := ~(ones | (values == 0))).any():
            position = _first(bad)
            self.fail(
                f"{position} is {values[tuple(position)]}; several labels per node are 0 or 1 each: leave nodes "
                f"without labels out of the split; if it contains one class per node, save it as [{len(values)}]"
            )
        if len(values) and (ones.sum(1) == 1).all():
            self.fail(
                f"has exactly one 1 in each of its {len(values)} rows, so it may be classes in one-hot form, or "
                f"several labels per node; save {self.key}.argmax(1), the classes, or pass labels as float to "
                "wb.Dataset.build"
            )
        return _tensor(values, np.float32)

    def texts(self) -> list[str]:
        """Return a vector of strings."""
        values = self.values
        if values.dtype.kind not in "SU" or values.ndim != 1:
            self.fail(
                f"has dtype {values.dtype} and shape {values.shape}; save a vector of strings, np.array(…, dtype=str)"
            )
        try:
            return [text.decode("utf-8") if isinstance(text, bytes) else text for text in values.tolist()]
        except UnicodeDecodeError as error:
            self.fail(f"contains {error.object!r}, which is not UTF-8 ({error.reason}); save an array of str")

    def _check_shape(self, expected: Shape) -> None:
        if not _fits(self.values.shape, expected):
            names = ", ".join("any" if e is None else str(e) for e in expected)
            remedy = self._shape_remedy(expected)
            if not remedy and len(expected) == 2 and expected[1] is None and expected[0] != 2:
                remedy = ", a row per node; check num_nodes"
            self.fail(f"has shape {list(self.values.shape)}; it must be [{names}]{remedy}")

    def _shape_remedy(self, expected: Shape) -> str:
        """The expression that gives the expected shape, if one does; "" otherwise."""
        shape, squeezed = self.values.shape, tuple(size for size in self.values.shape if size != 1)
        if len(shape) == 2 and _fits(shape[::-1], expected):
            return f": save {self.key}.T"
        if len(expected) == 1 and len(squeezed) < 2 and _fits((self.values.size,), expected):
            return f": save {self.key}.reshape(-1)"
        if len(expected) == 2 and len(shape) == 1:
            forms = (((1, *shape), "[None]"), ((*shape, 1), "[:, None]"))
            return next((f": save {self.key}{form}" for whole, form in forms if _fits(whole, expected)), "")
        if len(expected) == 2 and len(shape) > 2 and shape[0] == expected[0]:
            return f": save {self.key}.reshape({shape[0]}, -1)"
        return ""

    def _integer_remedy(self) -> str:
        values = self.values
        if values.dtype.kind in "fb":
            return f": save {self.key}.astype(np.int64), after checking that no value is a fraction or NaN"
        return _text_remedy(values)


def _text_remedy(values: np.ndarray) -> str:
    if values.dtype == object:  # a table of text whose columns have other types
        text = next((value for value in values.flat if isinstance(value, str)), None)
        return "" if text is None else f", not {text!r}: drop a header, and number the names"
    return ": number the names with np.unique(…, return_inverse=True)" if values.dtype.kind in "SU" else ""


def _fits(actual: tuple[int, ...], expected: Shape) -> bool:
    return len(actual) == len(expected) and all(e in (None, a) for a, e in zip(actual, expected, strict=True))


def _first(condition: np.ndarray) -> list[int]:
    """Position of the first true value."""
    return [int(axis) for axis in np.unravel_index(int(condition.argmax()), condition.shape)]


def _tensor(values: np.ndarray, dtype: Any) -> Tensor:
    """Convert without a copy if possible; read-only arrays are copied, and empty ones, whose strides are 0, are new."""
    tensor = torch.from_numpy(np.require(values, dtype, ("C", "W")))
    return tensor if tensor.numel() else torch.empty(tensor.shape, dtype=tensor.dtype)
