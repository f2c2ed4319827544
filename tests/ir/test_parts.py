"""Graphs that repeat themselves: cut into parts, each distinct one searched once, their programs joined."""

from __future__ import annotations

import numpy as np
import pytest
from search_graphs import Net, encoder, feeds_for, symbolic_encoder
from search_tools import TARGET, Oracle, kernel_shapes, space_of

from luminal_onnx.ir.graph import Graph
from luminal_onnx.ir.interpreter import run
from luminal_onnx.ir.parts import split
from luminal_onnx.ir.search import search
from luminal_onnx.plan.dtypes import float32


def layers_of(graph: Graph) -> list[int]:
    """How often each distinct part occurs, in the order of their first occurrence."""
    signatures = [part.signature for part in split(graph)]
    return [signatures.count(one) for one in dict.fromkeys(signatures)]


def decoder(layers: int, tied: bool = False, odd: int | None = None) -> Graph:
    """Layers before whose products a norm stands, with a mask that all read and an output of each; `odd` differs."""
    net = Net("decoder")
    x = net.input("x", float32, (2, 5, 8))
    mask = net.expand(net("mul", net("sub", 1.0, net.input("mask", float32, (2, 1, 5))), -30.0), (2, 5, 5))
    first = [net.weight(8, 24), net.weight(8, 16), net.weight(16, 8)]
    for layer in range(layers):
        net.origin = (f"layer.{layer}",)
        into, up, down = first if tied else [net.weight(*weight.shape) for weight in first]
        normal = net.layer_norm(x)
        joint = net.matmul(normal, into)
        q, k, v = (net.slice_axis(joint, 2, 8 * part, 8) for part in range(3))
        scores = net("add", net.matmul(q, net.transpose(k, (0, 2, 1))), mask)
        x = net("add", x, net.matmul(net.softmax(scores, 2), v))
        active = net("tanh" if layer == odd else "sigmoid", net.matmul(net.layer_norm(x), up))
        x = net("add", x, net.matmul(active, down))
        net.output(f"hidden.{layer}", x)
    return net.graph


def test_a_deep_model_is_cut_into_equal_layers():
    counts = layers_of(encoder(layers=12))
    assert max(counts) >= 10 and len(counts) <= 3


def test_cuts_hand_over_little():
    middle = split(encoder(layers=8))[2]
    assert len(middle.inputs) == len(middle.outputs) == 1


def test_a_small_graph_is_one_part():
    assert len(split(encoder(layers=2))) == 1
    assert len(split(Graph("nothing"))) == 1


def test_the_work_does_not_grow_with_equal_layers():
    few, many = (search(encoder(layers=n), TARGET).report for n in (8, 32))
    assert many.saturation.nodes <= 1.05 * few.saturation.nodes
    assert many.candidates <= 1.05 * few.candidates
    assert sum(many.kernels.values()) > 3.5 * sum(few.kernels.values())
    assert many.cost > 3.5 * few.cost


@pytest.mark.parametrize("graph", [encoder(layers=7), decoder(7), decoder(9, odd=7), decoder(7, tied=True)])
def test_the_joined_program_is_right(graph: Graph):
    assert len(split(graph)) > 2
    Oracle(graph).check(search(graph, TARGET).program)


@pytest.mark.parametrize("dims", [{"batch": 1, "length": 1}, {"batch": 3, "length": 17}])
def test_symbolic_sizes_are_cut_alike(dims: dict[str, int]):
    graph = symbolic_encoder(layers=6)
    assert layers_of(graph) == layers_of(encoder(layers=6))
    Oracle(graph, dims).check(search(graph, TARGET).program)


def test_joining_costs_nothing():
    """No good kernel reaches over a cut."""
    for graph in (encoder(layers=6, width=64, heads=4), decoder(6)):
        assert search(graph, TARGET).report.cost <= 1.01 * space_of(graph).best().report.cost


def test_a_layer_that_differs_has_a_program_of_its_own():
    same, other = layers_of(decoder(15)), layers_of(decoder(15, odd=7))
    assert len(other) > len(same) and max(same) >= 13 and max(other) >= 5
    functions = {fn for _, nodes, _ in kernel_shapes_of(decoder(15, odd=7)) for _, fn in nodes}
    assert {"tanh", "sigmoid"} <= functions


def kernel_shapes_of(graph: Graph) -> list[tuple]:
    return [shape for shape in kernel_shapes(search(graph, TARGET).program) if shape[0] != "cublaslt"]


def test_a_number_that_differs_is_not_shared():
    """Constants of one element are known to the rules, so layers with others are other programs."""
    net = Net("scaled")
    x = net.input("x", float32, (3, 8))
    for layer in range(40):
        x = net("tanh", net("add", net.matmul(x, net.weight(8, 8)), 0.1 if layer < 20 else -0.4))
        x = net("mul", net("add", net("sin", x), net("abs", x)), 0.7)
    net.output("y", x)
    assert len(split(net.graph)) > 2
    Oracle(net.graph).check(search(net.graph, TARGET).program)


def test_weights_of_all_layers_are_kept_once():
    def weights(graph: Graph) -> int:
        return sum(tensor.data.nbytes for tensor in search(graph, TARGET).program.tensors if tensor.kind == "weight")

    own, tied = weights(decoder(8)), weights(decoder(8, tied=True))
    assert own > 5 * tied


def test_each_kernel_names_its_own_layer():
    program = search(encoder(layers=8), TARGET).program
    named = [kernel.origin for kernel in program.kernels]
    assert {name for origin in named for name in origin} == {f"layer.{layer}" for layer in range(8)}
    assert all(origin for origin in named)
    first, last = named[0], named[-1]
    assert first == ("layer.0",) and last == ("layer.7",)


def test_inputs_and_constants_may_be_outputs():
    net = Net("through")
    x = net.input("x", float32, (2, 5, 8))
    y, table = x, net.weight(4, 3)
    for _ in range(8):
        y = net.encoder_layer(y, 2)
    for name, value in (("x", x), ("y", y), ("table", table), ("ones", net.expand(net.scalar(1.0, float32), (3,)))):
        net.output(name, value)
    program = search(net.graph, TARGET).program
    assert len(split(net.graph)) > 2
    Oracle(net.graph).check(program)


def test_every_layer_reads_its_own_weights():
    """Zeroing one layer's weights in the graph changes what the joined program gives, and in the same way."""
    outputs = []
    for seed in (0, 1):
        net = Net("seeded", seed=seed)
        x = net.input("x", float32, (2, 5, 8))
        for _ in range(7):
            x = net.encoder_layer(x, 2)
        net.output("y", x)
        Oracle(net.graph).check(search(net.graph, TARGET).program)
        outputs.append(run(net.graph, feeds_for(net.graph))[0])
    assert np.abs(outputs[0] - outputs[1]).max() > 0.1
