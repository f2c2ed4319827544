"""Recurrent layers and Fourier transforms."""

from __future__ import annotations

import numpy as np
from op_table import REDUCTION, Case, case, floats, other_floats, row, scalar

SUM = {"classes": REDUCTION}
STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 5, 2


def recurrent(gates: int, states: int, directions: int = 1, batch_first: bool = False, **options: object) -> Case:
    """A layer with random weights. `options` say which optional inputs it has, and its attributes."""
    x = floats(BATCH, STEPS, INPUTS) if batch_first else floats(STEPS, BATCH, INPUTS)
    inputs = [x, other_floats(directions, gates * HIDDEN, INPUTS), floats(directions, gates * HIDDEN, HIDDEN)]
    inputs.append(floats(directions, 2 * gates * HIDDEN, low=-0.5) if options.get("bias") else None)
    inputs.append(np.array([4, 2, 3], np.int32) if options.get("lengths") else None)
    shape = (BATCH, directions, HIDDEN) if batch_first else (directions, BATCH, HIDDEN)
    inputs += [floats(*shape, low=-0.7 - k) if options.get("initial") else None for k in range(states)]
    if options.get("peepholes"):
        inputs.append(floats(directions, 3 * HIDDEN, low=-0.4))
    attributes = {"hidden_size": HIDDEN, **options.get("at", {})}
    if directions == 2:
        attributes["direction"] = "bidirectional"
    if batch_first:
        attributes["layout"] = 1
    dims = {0: (None, "N", None)} if options.get("symbolic") else {}
    return case(*inputs, at=attributes, outputs=1 + states, since=options.get("since", 7), dims=dims, **SUM)


for name, gates, states in (("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1)):
    row(
        name,
        recurrent(gates, states, symbolic=True),
        recurrent(gates, states, bias=True, initial=True, at={"direction": "reverse"}),
        recurrent(gates, states, 2, bias=True, initial=True, lengths=True),
        recurrent(gates, states, 2, lengths=True, at={"clip": 0.4}),
    )
row(
    "LSTM",
    recurrent(4, 2, bias=True, initial=True, peepholes=True),
    recurrent(4, 2, at={"input_forget": 1}),
    recurrent(
        4,
        2,
        at={"activations": ["HardSigmoid", "Relu", "Softsign"], "activation_alpha": [0.3], "activation_beta": [0.6]},
    ),
)
row("GRU", recurrent(3, 1, bias=True, initial=True, at={"linear_before_reset": 1}))
row("RNN", recurrent(1, 1, at={"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}))

row(
    "DFT",
    case(floats(2, 6, 1), at={"axis": 1}, until=17, **SUM),
    case(floats(2, 6, 2), scalar(8, np.int64), at={"axis": 1, "inverse": 1}, constant=(1,), until=17, **SUM),
    case(floats(2, 7, 1), None, scalar(1, np.int64), at={"onesided": 1}, constant=(2,), since=20, **SUM),
    case(floats(2, 6, 3, 1), scalar(4, np.int64), scalar(-3, np.int64), constant=(1, 2), since=20, **SUM),
)
row(
    "STFT",
    case(floats(2, 20, 1), scalar(4, np.int64), floats(8, low=0.1), constant=(1,), **SUM),
    case(floats(1, 20, 1), scalar(3, np.int64), None, scalar(7, np.int64), at={"onesided": 0}, constant=(1, 3), **SUM),
    case(
        floats(1, 19, 1),
        scalar(5, np.int64),
        None,
        scalar(6, np.int64),
        constant=(1, 3),
        dims={0: (None, "L", None)},
        **SUM,
    ),
)
