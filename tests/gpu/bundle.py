"""Everything that the GPU suite needs, made on a machine without a GPU: artifacts, feeds and onnxruntime's outputs.

    python tests/gpu/bundle.py FOLDER [CASE ...]

The suite reads the folder named by LUMINAL_ONNX_GPU_BUNDLE, or makes one. So the GPU machine needs no compiler.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from luminal_onnx.codegen.artifact import write_artifact
from luminal_onnx.plan.records import Buffer, KernelStep, Plan, Port, Segment
from luminal_onnx.runtime.artifact import Artifact
from luminal_onnx.sampling import free_symbols

ARCH = "sm_90"


def make_bundle(folder: Path, names: list[str] | None = None) -> None:
    """Write for each parity case `<case>.luminal`, `<case>.npz` (feeds and outputs) and `<case>.kernels.luminal`."""
    import luminal_onnx
    from parity.cases import BUILT, REAL, SLOW_REAL
    from parity.comparison import onnxruntime_outputs

    folder.mkdir(parents=True, exist_ok=True)
    for case in (*BUILT, *REAL, *SLOW_REAL):
        if names and case.name not in names:
            continue
        model = case.build()
        sets = case.feeds(model)
        output_names, expected = onnxruntime_outputs(model, sets)
        artifact = luminal_onnx.compile(model, dims=case.dims, arches=[ARCH], verify=False)
        artifact.save(folder / f"{case.name}.luminal")
        write_kernels(artifact, folder / f"{case.name}.kernels.luminal")
        arrays = {f"in.{index}.{name}": array for index, feeds in enumerate(sets) for name, array in feeds.items()}
        for index, outputs in enumerate(expected):
            arrays |= {f"out.{index}.{name}": np.asarray(array) for name, array in zip(output_names, outputs)}
        np.savez(folder / f"{case.name}.npz", **arrays)
        (folder / f"{case.name}.json").write_text(json.dumps({"outputs": output_names, "sets": len(sets)}))
        print(case.name, flush=True)


def write_kernels(artifact: Artifact, path: Path) -> None:
    """Write an artifact that runs every distinct kernel of `artifact` once, each on feeds of its own."""
    plan = artifact.plan(ARCH)
    buffers: list[Buffer] = []
    inputs: list[Port] = []
    outputs: list[Port] = []
    steps: list[KernelStep] = []
    by_id = {buffer.id: buffer for buffer in plan.buffers}
    seen: set[str] = set()

    def copy(number: int, kind: str) -> Buffer:
        like = by_id[number]
        buffer = Buffer(len(buffers), f"b{len(buffers)}", kind, like.dtype, like.shape)
        buffers.append(buffer)
        return buffer

    for step in plan.steps():
        if not isinstance(step, KernelStep) or step.kernel.source in seen:
            continue
        seen.add(step.kernel.source)
        reads = [copy(number, "input") for number in step.reads]
        writes = [copy(number, "temporary") for number in step.writes]
        inputs += [Port(buffer.name, buffer.dtype, buffer.shape, buffer.id) for buffer in reads]
        outputs += [Port(f"{step.kernel.name}.{b.name}", b.dtype, b.shape, b.id) for b in writes]
        steps.append(KernelStep(step.kernel, tuple(b.id for b in writes), tuple(b.id for b in reads)))
    alone = Plan(ARCH, tuple(buffers), tuple(inputs), tuple(outputs), Segment(tuple(steps)), plan.ranges)
    alone.validate()
    sources = sorted(seen)
    write_artifact(
        path,
        manifest_info={"model": {"name": "kernels", "sha256": ""}},
        plans={ARCH: alone},
        cubins={ARCH: {source: artifact.cubin(ARCH, source) for source in sources}},
        ptx={source: artifact.ptx(source) for source in sources},
        sources={source: artifact.source(source) for source in sources},
        weights={},
    )


def kernel_feeds(plan: Plan, seed: int) -> dict[str, np.ndarray]:
    """Feeds for a `write_kernels` plan: normal floats, small integers, at sizes that no tile divides."""
    generator = np.random.default_rng(seed)
    sizes = dict(zip(sorted(free_symbols(plan.inputs)), (3, 17, 23, 14)))
    dims = {name: min(max(size, plan.ranges[name].min), plan.ranges[name].max) for name, size in sizes.items()}
    from luminal_onnx.plan.dims import evaluate

    feeds = {}
    for port in plan.inputs:
        shape = tuple(int(evaluate(dim, dims)) for dim in port.shape)
        array = generator.standard_normal(shape) if port.dtype.is_float else generator.integers(0, 2, shape)
        feeds[port.name] = np.asarray(array).astype(port.dtype.numpy)
    return feeds


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    make_bundle(Path(sys.argv[1]), sys.argv[2:])
