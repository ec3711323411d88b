"""Columns of a problem: what each array must be, and the error that refuses one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from allocation.types import Bools


class InvalidProblem(ValueError):
    """A column of a problem is unusable; says which, in which row, and why."""

    def __init__(self, column: str, reason: str, *, row: int | None = None) -> None:
        self.column, self.row, self.reason = column, row, reason
        super().__init__(f"{column}{'' if row is None else f', row {row}'}: {reason}")


@dataclass(frozen=True)
class Column:
    """Specification of a column: its axes (letters m, n, K, P, S, or digits; none: a scalar), type and bounds."""

    axes: str
    dtype: type[np.generic] = np.float64
    least: float = -np.inf
    most: float = np.inf
    positive: bool = False
    finite: bool = True
    default: float = 0.0

    def read(self, name: str, value: npt.ArrayLike, sizes: Mapping[str, int]) -> npt.NDArray[Any]:
        """Give the value as a read-only array, or refuse it."""
        array = self._coerced(name, value)
        self.check_shape(name, array, sizes)
        if not self._is_sound(array):
            wrong, reason = next(fault for fault in self._faults(array) if fault[0].any())
            raise InvalidProblem(name, reason, row=int(np.argwhere(wrong)[0, 0]) if self.axes else None)
        array.setflags(write=False)
        return array

    def check_shape(self, name: str, array: npt.NDArray[Any], sizes: Mapping[str, int]) -> None:
        """Refuse an array of another shape."""
        if array.shape != (shape := self._shape(sizes)):
            raise InvalidProblem(name, f"has shape {array.shape}, not {shape}")

    def blank(self, sizes: Mapping[str, int]) -> npt.NDArray[Any]:
        """Return the default in the column's shape, as a read-only array."""
        array: npt.NDArray[Any] = np.full(self._shape(sizes), self.default, dtype=self.dtype)
        array.setflags(write=False)
        return array

    def _shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes[axis] if axis in sizes else int(axis) for axis in self.axes)

    def _coerced(self, name: str, value: npt.ArrayLike) -> npt.NDArray[Any]:
        try:
            given = np.asarray(value)
            if self.dtype is np.int64 and given.dtype.kind == "f" and not np.array_equal(given, np.floor(given)):
                raise InvalidProblem(name, "must hold whole numbers")
            return np.array(given, dtype=self.dtype, order="C")
        except InvalidProblem:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidProblem(name, f"is not an array of numbers ({error})") from error

    def _is_sound(self, array: npt.NDArray[Any]) -> bool:
        """Whether it has no fault, by its least and its largest entry alone: those of an array with a NaN are NaN."""
        if self.dtype is np.bool_ or not array.size:
            return True
        low, high = np.minimum.reduce(array, axis=None), np.maximum.reduce(array, axis=None)
        return bool(
            self.least <= low <= high <= self.most
            and (low > 0 or not self.positive)
            and (abs(low) < np.inf > high or not self.finite)
        )

    def _faults(self, array: npt.NDArray[Any]) -> list[tuple[Bools, str]]:
        if self.dtype is np.bool_:
            return []
        return [
            (np.isnan(array), "is not a number"),
            (np.isinf(array) & self.finite, "must be finite"),
            (array < self.least, f"must not be less than {self.least:g}"),
            (array > self.most, f"must not be more than {self.most:g}"),
            ((array <= 0) & self.positive, "must be positive"),
        ]


def sizes_of(columns: Mapping[str, Column], given: Mapping[str, npt.ArrayLike]) -> dict[str, int]:
    """The length of each axis of these arrays, by its letter."""
    sizes = dict[str, int]()
    for name, value in given.items():
        axes = columns[name].axes
        if np.ndim(value) != len(axes):
            raise InvalidProblem(name, f"must have {len(axes)} dimension{'s' * (len(axes) > 1)}")
        for axis, length in zip(axes, np.shape(value), strict=True):
            sizes.setdefault(axis, length)
    return {axis: length for axis, length in sizes.items() if axis.isalpha()}


def refuse(column: str, wrong: Bools | np.bool_, reason: str) -> None:
    """Raise `InvalidProblem` for the first row at which `wrong` (m,) holds."""
    if wrong.any():
        raise InvalidProblem(column, reason, row=int(np.flatnonzero(wrong)[0]))
