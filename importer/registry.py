"""The table of operators: which function imports (domain, operator, version)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from onnx import defs

from ..plan.errors import LuminalError


@dataclass(frozen=True)
class Operator:
    """How one version of an operator is imported.

    `function(builder, *inputs, **attributes)` returns its output or a tuple of them. `since` is the schema version that
    it implements, `ignored` names attributes that do not change what inference computes, `only` the values that are
    supported of attributes that have others too.
    """

    domain: str
    name: str
    since: int
    function: Callable[..., Any]
    ignored: frozenset[str] = frozenset()
    only: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The attributes that the function takes."""
        parameters = inspect.signature(self.function).parameters.values()
        return frozenset(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)

    @cached_property
    def input_limits(self) -> tuple[int, int | None]:
        """The fewest and the most inputs that the function takes (None: any number)."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        plain = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        required = sum(p.default is inspect.Parameter.empty for p in plain)
        return required, None if variadic else len(plain)

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """The inputs that cannot be left out: those whose annotation does not allow None."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        plain = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        return tuple(k for k, p in enumerate(plain) if "None" not in str(p.annotation))


class Unknown(Exception):
    """No function imports this version of an operator; the text says what is known instead."""


_TABLE: dict[tuple[str, str], dict[int, Operator]] = {}


def onnx_op(
    name: str,
    *since: int,
    domain: str = "",
    ignored: Sequence[str] = (),
    only: Mapping[str, Sequence[Any]] | None = None,
) -> Callable[[Callable], Callable]:
    """Register the decorated function for the versions `since` of an operator.

    Every schema version is named, those too that only widened the types: a version that nobody has looked at is
    reported as unsupported instead of being read by an older version's rules.
    """

    def register(function: Callable) -> Callable:
        versions = _TABLE.setdefault((domain, name), {})
        for version in since:
            if version in versions:
                raise LuminalError(f"{domain or 'ai.onnx'}.{name} version {version} is registered twice")
            versions[version] = Operator(domain, name, version, function, frozenset(ignored), dict(only or {}))
        return function

    return register


def registered() -> list[Operator]:
    """Return every registered version of every operator, sorted."""
    from . import ops

    ops.load_all()
    return [versions[since] for _, versions in sorted(_TABLE.items()) for since in sorted(versions)]


def find(domain: str, name: str, opset: int) -> Operator:
    """Return the operator as opset `opset` of its domain defines it; Unknown if that version is not imported.

    For the standard domain ONNX's own schemas say which version an opset means; elsewhere the largest registered
    version that is not newer is taken.
    """
    from . import ops

    ops.load_all()
    versions = _TABLE.get((domain, name), {})
    if domain == "" and opset > defs.onnx_opset_version():
        raise Unknown(
            f"opset {opset} is newer than the installed onnx package knows ({defs.onnx_opset_version()}); upgrade onnx"
        )
    if domain == "" and defs.has(name, opset, ""):
        since = defs.get_schema(name, opset, "").since_version
    else:
        since = max((version for version in versions if version <= opset), default=0)
    if since in versions:
        return versions[since]
    if not versions:
        raise Unknown("this operator is not supported")
    known = ", ".join(map(str, sorted(versions)))
    raise Unknown(f"version {since or '?'} of this operator is not supported; versions {known} are")


_PYTHON_TYPES = {"INT": int, "FLOAT": float, "STRING": str, "INTS": list, "FLOATS": list, "STRINGS": list}


def wrong_type(operator: Operator, name: str, value: Any) -> str | None:
    """Return the type that the schema wants of an attribute if the value is not of it; else None."""
    if operator.domain != "" or not defs.has(operator.name, operator.since, ""):
        return None
    wanted = str(defs.get_schema(operator.name, operator.since, "").attributes[name].type).rpartition(".")[2]
    expected = _PYTHON_TYPES.get(wanted)
    return wanted if expected is not None and not isinstance(value, expected) else None


def defaults(operator: Operator) -> tuple[dict[str, Any], set[str], set[str] | None]:
    """Return the schema's attribute defaults, its required attributes, and all its attributes (None: no schema)."""
    if operator.domain != "" or not defs.has(operator.name, operator.since, ""):
        return {}, set(), None
    schema = defs.get_schema(operator.name, operator.since, "")
    given: dict[str, Any] = {}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name:
            given[name] = _default(attribute.default_value)
    required = {name for name, attribute in schema.attributes.items() if attribute.required}
    return given, required, set(schema.attributes)


def _default(attribute: Any) -> Any:
    from .attributes import value
    from .tensors import TensorReader

    return value(attribute, TensorReader(None), "a schema")
