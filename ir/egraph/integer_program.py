"""A small mixed integer program, built row by row and solved by HiGHS."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...plan.errors import MissingDependency

RELATIVE_GAP = 1e-6
UNIT = 1e-6  # costs are seconds: counted in microseconds they suit the solver's tolerances


class IntegerProgram:
    """Minimise the cost of binary variables under `sum >= bound` rows."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.upper: list[float] = []
        self.integer: list[int] = []
        self.rows: list[tuple[float, dict[int, float]]] = []

    def binary(self, cost: float) -> int:
        """Return a new variable that is 0 or 1."""
        return self._variable(cost / UNIT, 1.0, 1)

    def level(self, highest: float) -> int:
        """Return a new real variable between 0 and `highest`, without cost."""
        return self._variable(0.0, highest, 0)

    def _variable(self, cost: float, upper: float, integer: int) -> int:
        self.costs.append(cost)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.costs) - 1

    def at_least(self, bound: float, coefficients: Mapping[int, float]) -> None:
        self.rows.append((bound, dict(coefficients)))

    def minimise(self, seconds: float) -> tuple[list[float] | None, bool]:
        """Return a value for each variable, the best found within the time, and whether it is proven to be optimal.

        None if none was found.
        """
        try:
            from scipy.optimize import Bounds, LinearConstraint, milp
            from scipy.sparse import csr_matrix
        except ImportError:
            raise MissingDependency("compiling needs scipy: pip install 'luminal-onnx[compile]'") from None
        places = [(row, column, value) for row, (_, c) in enumerate(self.rows) for column, value in c.items()]
        rows, columns, values = zip(*places)
        matrix = csr_matrix((values, (rows, columns)), shape=(len(self.rows), len(self.costs)))
        result = milp(
            np.array(self.costs),
            constraints=LinearConstraint(matrix, lb=np.array([bound for bound, _ in self.rows])),
            bounds=Bounds(np.zeros(len(self.costs)), np.array(self.upper)),
            integrality=np.array(self.integer),
            options={"time_limit": max(seconds, 0.01), "mip_rel_gap": RELATIVE_GAP},
        )
        return (None if result.x is None else list(result.x)), result.status == 0
