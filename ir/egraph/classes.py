"""The saturated e-graph read back into Python: which nodes each class holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...plan.lt import LtMatmul
from ..scalars import TABLE
from .handles import Shape
from .lift import stored_shape
from .saturate import Saturated


class Leaf(NamedTuple):
    """Load, Const or Iota: `kind` says which. Handles and tensors are fields of what they are for, else 0."""

    kind: str
    tensor: int
    handle: int
    shape: int
    dtype: int


class Inner(NamedTuple):
    """`kind` is elementwise, gather, reduce or broadcast; `extents` is a shape's handle, `tensor` a gather's data."""

    kind: str
    fn: str
    args: tuple[int, ...]
    extents: int
    tensor: int
    dtype: int


class Library(NamedTuple):
    """A library call: the classes of its operands, and the number of its record."""
    operands: tuple[int, ...]
    record: int


class ScatterNode(NamedTuple):
    """A scatter: its function, and the classes of what it changes, where, and by what."""
    fn: str
    operands: tuple[int, ...]


@dataclass
class Classes:
    """Tensor classes and register classes, each numbered by the engine.

    `stores[t]` pairs each register class that is stored there with the shape's handle; `value_class[n]` is the tensor
    class of graph value n, `register_class[n]` that of its register. `products` are the registers that multiply and are
    summed, `contracted` those among them that belong to a matrix product or a convolution. `parts[t]` are the tensors
    that are slices of a joined product t. `sizes` are the tensors that hold the sizes which the graph computes; they
    are wanted in memory like outputs, so `outputs` has them too.
    """

    saturated: Saturated
    inputs: dict[int, int]
    stores: dict[int, list[tuple[int, int]]]
    library: dict[int, list[Library]]
    scatters: dict[int, list[ScatterNode]]
    registers: dict[int, list[Leaf | Inner]]
    dtypes: dict[int, int]
    tensor_dtypes: dict[int, int]
    value_class: dict[int, int]
    register_class: dict[int, int]
    softmax: frozenset[int]
    layer_norm: frozenset[int]
    rms_norm: frozenset[int]
    products: frozenset[int]
    contracted: frozenset[int]
    parts: dict[int, frozenset[int]]

    def shape_of(self, tensor: int) -> Shape:
        """Return one shape of the tensor, that of the first graph value in its class."""
        if tensor in self.first_value:
            return stored_shape(self.saturated.lifted.nodes[self.first_value[tensor]])
        if tensor in self.inputs:
            return self.saturated.joined[self.inputs[tensor]].type.shape
        return self.saturated.handles.thing(self.stores[tensor][0][1])

    def order(self, tensor: int) -> float:
        """Return the tensor's place in the order of the graph: each comes after what it is computed from.

        A copy that a rewrite brought in stands right after its original, a joined product right before its first part.
        """
        if tensor in self.first_value:
            return self.first_value[tensor]
        if tensor in self.parts:
            return min(map(self.order, self.parts[tensor])) - 0.25
        nodes = [node for register, _ in self.stores[tensor] for node in self.registers[register]]
        loaded = {node.tensor for node in nodes if node.kind == "load"}
        known = [self.order(other) for other in loaded if other in self.first_value or other in self.parts]
        return 0.5 + max(known, default=-1)

    def __post_init__(self) -> None:
        self.first_value: dict[int, int] = {}
        for number in sorted(self.value_class):
            self.first_value.setdefault(self.value_class[number], number)
        graph, number = self.saturated.graph, self.saturated.lifted.value_number
        self.sizes = {name: self.value_class[number(size.value)] for name, size in graph.live_sizes().items()}
        self.outputs = [self.value_class[number(value)] for value in graph.outputs]
        self.outputs.extend(self.sizes.values())
        self.consumers = self._consumers()
        self.sinks = self._sinks()

    def _consumers(self) -> dict[int, frozenset[int]]:
        """Return, for each tensor class, those whose graph values use it; views count as what uses them."""
        lifted = self.saturated.lifted
        found: dict[int, set[int]] = {}
        for number in reversed(range(len(lifted.nodes))):
            node = lifted.nodes[number]
            user = self.value_class[number]
            users = found.get(user, {user}) if node.op == "view" else {user}
            for value in node.inputs:
                used = self.value_class[lifted.value_number(value)]
                found.setdefault(used, set()).update(users - {used})
        return {tensor: frozenset(users) for tensor, users in found.items()}


    def _sinks(self) -> dict[int, int]:
        """Return, for each tensor class, how many kernels at least will want it, all else being fused.

        Counted are the outputs, matrix products and factors of those that are reached without passing another of them.
        Outputs and factors are the `ends`: they are in memory in any case.
        """
        factors = {
            tensor for tensor, users in self.consumers.items()
            if any(register in self.contracted for user in users for register, _ in self.stores.get(user, ()))
        }
        joint = {tensor for tensor, parts in self.parts.items() if parts <= factors | set(self.outputs)}
        self.ends = ends = frozenset(factors | set(self.outputs) | joint)
        found: dict[int, frozenset[int]] = {}
        for tensor in sorted(self.consumers, key=self.order, reverse=True):
            reached: set[int] = set()
            for user in self.consumers[tensor]:
                is_end = user in ends or any(register in self.contracted for register, _ in self.stores.get(user, ()))
                reached |= {user} if is_end else found.get(user, {user})
            found[tensor] = frozenset(reached)
        for tensor, parts in self.parts.items():
            found[tensor] = frozenset().union(*(found.get(part, frozenset()) for part in parts))
        return {tensor: len(reached) for tensor, reached in found.items()}


_COMMUTING = ("add", "mul")
CHEAP = 24.0  # in units of a float addition


def read_classes(saturated: Saturated) -> Classes:
    """Read everything that can be selected. Terms on their way (`Through`) and names are left out."""
    rows = saturated.rows
    registers: dict[int, list[Leaf | Inner]] = {}
    _read_leaves(rows, registers)
    _read_inner(rows, registers)
    stores: dict[int, list[tuple[int, int]]] = {}
    for register, shape, tensor in rows["Store"]:
        stores.setdefault(tensor, []).append((register, shape))
    repeating = _repeating(stores, registers, saturated)
    _drop_loads(registers, stores, repeating | _made_of_nothing(stores, registers))
    library: dict[int, list[Library]] = {}
    for tensor, a, b, c, bias, record, _ in rows["LtGemm"]:
        matmul: LtMatmul = saturated.handles.thing(record)
        operands = (a, b, *([c] if matmul.has_c else []), *([bias] if matmul.has_bias else []))
        if repeating.isdisjoint(operands):
            library.setdefault(tensor, []).append(Library(operands, record))
    scatters: dict[int, list[ScatterNode]] = {}
    for fn, *operands, tensor in rows["Scatter"]:
        scatters.setdefault(tensor, []).append(ScatterNode(fn, tuple(operands)))
    products = _summed_products(registers)
    saturated.report.classes = len(registers) + len({row[-1] for row in rows["Value"]})
    return Classes(
        saturated=saturated,
        inputs={tensor: number for number, tensor in rows["In"]},
        stores=stores,
        library=library,
        scatters=scatters,
        registers=registers,
        dtypes={register: dtype for register, dtype in rows["r-dtype"]},
        tensor_dtypes={tensor: dtype for tensor, dtype in rows["t-dtype"]},
        value_class={number: tensor for number, tensor in rows["Value"]},
        register_class={number: register for number, register in rows["Register"]},
        softmax=frozenset(row[0] for row in rows["IsSoftmax"]),
        layer_norm=frozenset(row[0] for row in rows["IsLayerNorm"]),
        rms_norm=frozenset(row[0] for row in rows["IsRMSNorm"]),
        products=products,
        contracted=_contracted(products, registers, saturated),
        parts=_parts(rows),
    )


def _parts(rows: dict[str, list[tuple]]) -> dict[int, frozenset[int]]:
    found: dict[int, set[int]] = {}
    for part, joint, _ in rows["PartOf"]:
        found.setdefault(joint, set()).add(part)
    return {joint: frozenset(parts) for joint, parts in found.items()}


def _read_leaves(rows: dict[str, list[tuple]], registers: dict[int, list]) -> None:
    for tensor, view, dtype, register in rows["Load"]:
        registers.setdefault(register, []).append(Leaf("load", tensor, view, 0, dtype))
    for bits, dtype, register in rows["Const"]:
        registers.setdefault(register, []).append(Leaf("const", 0, bits, 0, dtype))
    for expr, shape, register in rows["Iota"]:
        registers.setdefault(register, []).append(Leaf("iota", 0, expr, shape, -1))


def _read_inner(rows: dict[str, list[tuple]], registers: dict[int, list]) -> None:
    mirrored = set()
    for name in ("E1", "E2", "E3"):
        for fn, *args, dtype, register in rows[name]:
            if fn in _COMMUTING:
                # a + b and b + a are one kernel; the rules needed both, a choice does not.
                key = (fn, register, *sorted(args))
                if key in mirrored:
                    continue
                mirrored.add(key)
            registers.setdefault(register, []).append(Inner("elementwise", fn, tuple(args), 0, 0, dtype))
    for tensor, index, dtype, register in rows["Gather"]:
        registers.setdefault(register, []).append(Inner("gather", "", (index,), 0, tensor, dtype))
    for fn, arg, extents, dtype, register in rows["Red"]:
        registers.setdefault(register, []).append(Inner("reduce", fn, (arg,), extents, 0, dtype))
    for arg, extents, register in rows["Bcast"]:
        registers.setdefault(register, []).append(Inner("broadcast", "", (arg,), extents, 0, -1))


def _contracted(products: frozenset[int], registers: dict[int, list], saturated: Saturated) -> frozenset[int]:
    """Return the summed products of which each factor is used several times: matrix products and convolutions."""

    def is_spread(register: int) -> bool:
        return any(
            node.kind == "load" and saturated.handles.thing(node.handle).broadcast_axes()
            for node in registers[register]
        )

    return frozenset(
        register for register in products
        if any(
            isinstance(node, Inner) and node.fn == "mul" and all(map(is_spread, node.args))
            for node in registers[register]
        )
    )


def _repeating(
    stores: dict[int, list[tuple[int, int]]], registers: dict[int, list], saturated: Saturated
) -> frozenset[int]:
    """Return the tensors that only hold elements of another one several times over, or one constant."""

    def repeats(node: Leaf | Inner) -> bool:
        if node.kind == "load":
            return bool(saturated.handles.thing(node.handle).broadcast_axes())
        return node.kind == "const"

    return frozenset(
        tensor for tensor, pairs in stores.items()
        if any(repeats(node) for register, _ in pairs for node in registers.get(register, ()))
    )


def _made_of_nothing(stores: dict[int, list[tuple[int, int]]], registers: dict[int, list]) -> frozenset[int]:
    """Return the tensors computed from constants and indices alone, by so little that reading them saves nothing."""
    costs: dict[int, float] = {}
    for register, nodes in registers.items():
        if any(node.kind in ("const", "iota") for node in nodes):
            costs[register] = 0.0
    waiting = {
        register: node for register, nodes in registers.items() for node in nodes if node.kind == "elementwise"
    }
    changed = True
    while changed:
        changed = False
        for register, node in list(waiting.items()):
            if register in costs or all(arg in costs for arg in node.args):
                cost = TABLE[node.fn].cost + sum(costs[arg] for arg in node.args) if register not in costs else 0.0
                if cost <= CHEAP:
                    costs.setdefault(register, cost)
                del waiting[register]
                changed = True
    return frozenset(
        tensor for tensor, pairs in stores.items() if all(register in costs for register, _ in pairs)
    )


def _drop_loads(
    registers: dict[int, list], stores: dict[int, list[tuple[int, int]]], tensors: frozenset[int]
) -> None:
    """Drop the loads of these tensors wherever there is another way to have the value: reading them is never better.

    Loading where the value itself is stored is no other way.
    """
    own: dict[int, set[int]] = {}
    for tensor, pairs in stores.items():
        for register, _ in pairs:
            own.setdefault(register, set()).add(tensor)
    for register, nodes in registers.items():
        kept = [node for node in nodes if not (node.kind == "load" and node.tensor in tensors)]
        if any(not (node.kind == "load" and node.tensor in own.get(register, ())) for node in kept):
            registers[register] = kept


def _summed_products(registers: dict[int, list]) -> frozenset[int]:
    """Return the register classes that are products and get summed: they should never be stored."""
    summed = {
        node.args[0] for nodes in registers.values() for node in nodes
        if isinstance(node, Inner) and node.kind == "reduce" and node.fn == "sum"
    }
    return frozenset(
        register for register in summed
        if any(isinstance(node, Inner) and node.fn == "mul" for node in registers.get(register, ()))
    )
