"""LSTM, GRU and RNN. What depends on the input only is one product over all steps; the rest is a loop over the steps.

Few steps are unrolled: one copy of the cell per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from ...ir.graph import Value
from ...plan.dims import Dim
from ...plan.dtypes import int64
from ..bodies import fitted, loop, state, trip_symbol
from ..context import NodeBuilder
from ..registry import onnx_op
from .precision import widened

# A step is some 25 nodes and 2 to 4 kernels, which mostly do not fuse across steps: unrolling saves nothing but the rows'
# copies, and its cost in the search grows with every step. Up to here it is not felt.
MOST_UNROLLED = 8
Activation = Callable[[NodeBuilder, Value, float, float], Value]
Step = Callable[[Value, Sequence[Value]], list[Value]]

# name -> (meaning, default alpha, default beta)
ACTIVATIONS: dict[str, tuple[Activation, float, float]] = {
    "sigmoid": (lambda b, x, alpha, beta: b.b("sigmoid", x), 0, 0),
    "tanh": (lambda b, x, alpha, beta: b.b("tanh", x), 0, 0),
    "relu": (lambda b, x, alpha, beta: b.b("max", x, 0), 0, 0),
    "affine": (lambda b, x, alpha, beta: b.b("add", b.b("mul", x, alpha), beta), 1, 0),
    "leakyrelu": (lambda b, x, alpha, beta: b.b("where", b.b("less", x, 0), b.b("mul", x, alpha), x), 0.01, 0),
    "thresholdedrelu": (lambda b, x, alpha, beta: b.b("where", b.b("greater", x, alpha), x, 0), 1, 0),
    "scaledtanh": (lambda b, x, alpha, beta: b.b("mul", b.b("tanh", b.b("mul", x, beta)), alpha), 1, 1),
    "hardsigmoid": (
        lambda b, x, alpha, beta: b.b("max", b.b("min", b.b("add", b.b("mul", x, alpha), beta), 1), 0),
        0.2,
        0.5,
    ),
    "softsign": (lambda b, x, alpha, beta: b.b("div", x, b.b("add", b.b("abs", x), 1)), 0, 0),
}


@dataclass(frozen=True)
class Weights:
    """One direction's weights: input and recurrent matrices, transposed, and both biases (None: zero)."""

    w: Value
    r: Value
    w_bias: Value | None
    r_bias: Value | None


def _activations(
    b: NodeBuilder, names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Callable[[Value], Value]]:
    """Return the activations in order. The lists of parameters have entries only for activations that take them."""
    alphas, betas = list(alphas or []), list(betas or [])
    found = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            b.fail(f"the activation {name!r} is not supported; supported: {', '.join(sorted(ACTIVATIONS))}")
        meaning, alpha, beta = ACTIVATIONS[name.lower()]
        if alpha:
            alpha = alphas.pop(0) if alphas else alpha
        if beta or name.lower() == "affine":
            beta = betas.pop(0) if betas else beta
        found.append(lambda x, meaning=meaning, alpha=alpha, beta=beta: meaning(b, x, alpha, beta))
    return found


def _clipped(b: NodeBuilder, x: Value, clip: float | None) -> Value:
    return b.b("min", b.b("max", x, -clip), clip) if clip else x


def _plus(b: NodeBuilder, x: Value, *biases: Value | None) -> Value:
    """Add biases to a product; their sum first, so that one kernel can do all of it."""
    given = [bias for bias in biases if bias is not None]
    return b.b("add", x, reduce(lambda one, other: b.b("add", one, other), given)) if given else x


def _weights(b: NodeBuilder, w: Value, r: Value, bias: Value | None, direction: int) -> Weights:
    def one(x: Value) -> Value:
        return b.squeeze(b.slice_axis(widened(b, x), 0, direction, 1), [0])

    if bias is None:
        return Weights(b.transpose(one(w), (1, 0)), b.transpose(one(r), (1, 0)), None, None)
    half = w.shape[1]
    both = one(bias)
    w_bias, r_bias = b.slice_axis(both, 0, 0, half), b.slice_axis(both, 0, half, half)
    return Weights(b.transpose(one(w), (1, 0)), b.transpose(one(r), (1, 0)), w_bias, r_bias)


def _gates(b: NodeBuilder, x: Value, count: int) -> list[Value]:
    """Cut the last axis into equal parts."""
    size = x.shape[-1] // count
    return b.split(x, [size] * count, -1)


def _recurrent(
    b: NodeBuilder,
    x: Value,
    initial: Sequence[Value | None],
    lengths: Value | None,
    hidden: int,
    direction: str,
    layout: int,
    project: Callable[[int, Value], Value],
    step: Callable[[int, Value, Sequence[Value]], list[Value]],
) -> tuple[Value, ...]:
    """Run every direction over the sequence and return Y and the last states, in the node's layout.

    `project(direction, x)` is what depends on the input only; `step(direction, projected, states)` returns new states,
    the first of which is the output.
    """
    if x.type.rank != 3:
        b.invalid(f"its input must have the three axes of sequence, batch and features, not be {x.type}")
    dtype = x.dtype
    x = widened(b, x)
    if layout:
        x = b.transpose(x, (1, 0, 2))
        initial = [None if state is None else b.transpose(state, (1, 0, 2)) for state in initial]
    steps, batch = x.shape[0], x.shape[1]
    run = _unrolled if type(steps) is int and steps <= MOST_UNROLLED else _rolled
    outputs, finals = [], []
    for number in range(2 if direction == "bidirectional" else 1):
        backward = direction == "reverse" or number == 1
        zero = b.expand(b.scalar(0, x.dtype), (batch, hidden))
        states = [
            zero
            if given is None
            else fitted(
                b, b.squeeze(b.slice_axis(widened(b, given), 0, number, 1), [0]), zero.type, "its initial state"
            )
            for given in initial
        ]
        projected = project(number, _reversed(b, x, lengths) if backward else x)
        y, states = run(b, projected, states, lengths, lambda p, s, n=number: step(n, p, s))
        if lengths is not None:
            counts = b.cast(lengths, int64)
            places = b.iota_along((steps, batch), 0)
            y = b.b("where", b.unsqueeze(b.b("less", places, counts), [2]), y, 0)
            # ONNX does not say what a sequence of length 0 ends with; in onnxruntime it is 0.
            some = b.unsqueeze(b.b("greater", counts, 0), [1])
            states = [b.b("where", some, value, 0) for value in states]
        outputs.append(b.unsqueeze(_reversed(b, y, lengths) if backward else y, [1]))
        finals.append(states)
    joined = [b.concat(outputs, 1)] + [b.concat([b.unsqueeze(s, [0]) for s in states], 0) for states in zip(*finals)]
    if layout:
        joined = [b.transpose(joined[0], (2, 0, 1, 3))] + [b.transpose(state, (1, 0, 2)) for state in joined[1:]]
    return tuple(b.cast(value, dtype) for value in joined)


def _unrolled(
    b: NodeBuilder, projected: Value, states: Sequence[Value], lengths: Value | None, step: Step
) -> tuple[Value, Sequence[Value]]:
    """Return the first state after each step, and the last states, with one copy of the cell for each step."""
    if projected.shape[0] == 0:
        return b.expand(b.scalar(0, projected.dtype), (0, *states[0].shape)), states
    rows = []
    for t in range(projected.shape[0]):
        states = _one_step(b, projected, t, states, lengths, step)
        rows.append(b.unsqueeze(states[0], [0]))
    return b.concat(rows, 0), states


def _rolled(
    b: NodeBuilder, projected: Value, states: Sequence[Value], lengths: Value | None, step: Step
) -> tuple[Value, Sequence[Value]]:
    """Return the same, with one cell in a loop over the steps."""
    steps = projected.shape[0]
    with trip_symbol(b, steps) as t:
        inner = [state(b, value.type) for value in states]
        following = _one_step(b, projected, t, inner, lengths, step)
        *finals, y = loop(b, t, steps, states, inner, following, following[:1])
    return y, finals


def _one_step(
    b: NodeBuilder, projected: Value, t: Dim, states: Sequence[Value], lengths: Value | None, step: Step
) -> list[Value]:
    """Return the states after step t; past a sequence's length they stay."""
    new = step(b.squeeze(b.slice_axis(projected, 0, t, 1), [0]), states)
    if lengths is None:
        return new
    active = b.unsqueeze(b.b("greater", b.cast(lengths, int64), b.dim_value(t)), [1])
    return [b.b("where", active, value, old) for value, old in zip(new, states, strict=True)]


def _reversed(b: NodeBuilder, x: Value, lengths: Value | None) -> Value:
    """Reverse the steps, of each sequence only as many as it has."""
    if lengths is None:
        return b.slice_axis(x, 0, x.shape[0] - 1, x.shape[0], -1)
    from .indexing import reverse_sequence

    return reverse_sequence(b, x, lengths, time_axis=0, batch_axis=1)


_DIRECTIONS = ("forward", "reverse", "bidirectional")


@onnx_op("LSTM", 7, 14, 22, only={"direction": _DIRECTIONS})
def lstm(
    b: NodeBuilder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    peepholes: Value | None = None,
    *,
    direction: str,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    hidden_size: int | None = None,
    input_forget: int,
    layout: int = 0,
) -> tuple[Value, ...]:
    """Gates are stored in the order input, output, forget, cell."""
    hidden, directions = r.shape[2], w.shape[0]
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * directions
    functions = _activations(b, names, activation_alpha, activation_beta)
    weights = [_weights(b, w, r, bias, d) for d in range(directions)]
    looks = [[None] * 3] * directions
    if peepholes is not None:
        looks = [_gates(b, b.squeeze(b.slice_axis(widened(b, peepholes), 0, d, 1), [0]), 3) for d in range(directions)]

    def project(d: int, sequence: Value) -> Value:
        return _plus(b, b.matmul(sequence, weights[d].w), weights[d].w_bias, weights[d].r_bias)

    def peep(gate: Value, cell: Value, weight: Value | None) -> Value:
        return gate if weight is None else b.b("add", gate, b.b("mul", cell, weight))

    def step(d: int, projected: Value, states: Sequence[Value]) -> list[Value]:
        h, c = states
        f, g, o = functions[3 * d : 3 * d + 3]
        i_gate, o_gate, f_gate, c_gate = _gates(b, b.b("add", projected, b.matmul(h, weights[d].r)), 4)
        enter = f(_clipped(b, peep(i_gate, c, looks[d][0]), clip))
        keep = b.b("sub", 1, enter) if input_forget else f(_clipped(b, peep(f_gate, c, looks[d][2]), clip))
        c = b.b("add", b.b("mul", keep, c), b.b("mul", enter, g(_clipped(b, c_gate, clip))))
        leave = f(_clipped(b, peep(o_gate, c, looks[d][1]), clip))
        return [b.b("mul", leave, o(c)), c]

    return _recurrent(b, x, [initial_h, initial_c], lengths, hidden, direction, layout, project, step)


@onnx_op("GRU", 7, 14, 22, only={"direction": _DIRECTIONS})
def gru(
    b: NodeBuilder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
    *,
    direction: str,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    hidden_size: int | None = None,
    linear_before_reset: int,
    layout: int = 0,
) -> tuple[Value, ...]:
    """Gates are stored in the order update, reset, hidden."""
    hidden, directions = r.shape[2], w.shape[0]
    names = activations or ["Sigmoid", "Tanh"] * directions
    functions = _activations(b, names, activation_alpha, activation_beta)
    weights = [_weights(b, w, r, bias, d) for d in range(directions)]

    def project(d: int, sequence: Value) -> Value:
        return _plus(b, b.matmul(sequence, weights[d].w), weights[d].w_bias)

    def step(d: int, projected: Value, states: Sequence[Value]) -> list[Value]:
        (h,) = states
        f, g = functions[2 * d : 2 * d + 2]
        z_in, r_in, h_in = _gates(b, projected, 3)
        two, one = b.split(weights[d].r, [2 * hidden, hidden], 1)
        biases = [None, None] if weights[d].r_bias is None else b.split(weights[d].r_bias, [2 * hidden, hidden], 0)
        z_back, r_back = _gates(b, _plus(b, b.matmul(h, two), biases[0]), 2)
        update = f(_clipped(b, b.b("add", z_in, z_back), clip))
        reset = f(_clipped(b, b.b("add", r_in, r_back), clip))
        if linear_before_reset:
            back = b.b("mul", reset, _plus(b, b.matmul(h, one), biases[1]))
        else:
            back = _plus(b, b.matmul(b.b("mul", reset, h), one), biases[1])
        new = g(_clipped(b, b.b("add", h_in, back), clip))
        return [b.b("add", b.b("mul", b.b("sub", 1, update), new), b.b("mul", update, h))]

    return _recurrent(b, x, [initial_h], lengths, hidden, direction, layout, project, step)


@onnx_op("RNN", 7, 14, 22, only={"direction": _DIRECTIONS})
def rnn(
    b: NodeBuilder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
    *,
    direction: str,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Value, ...]:
    hidden, directions = r.shape[2], w.shape[0]
    functions = _activations(b, activations or ["Tanh"] * directions, activation_alpha, activation_beta)
    weights = [_weights(b, w, r, bias, d) for d in range(directions)]

    def project(d: int, sequence: Value) -> Value:
        return _plus(b, b.matmul(sequence, weights[d].w), weights[d].w_bias, weights[d].r_bias)

    def step(d: int, projected: Value, states: Sequence[Value]) -> list[Value]:
        return [functions[d](_clipped(b, b.b("add", projected, b.matmul(states[0], weights[d].r)), clip))]

    return _recurrent(b, x, [initial_h], lengths, hidden, direction, layout, project, step)
