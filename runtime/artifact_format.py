"""The file format of `model.luminal`: what its writer and its reader must agree on.

Version 1 has plans of segments and sequences only, and one plan for the whole range. Version 2 also has loops, conditions
and sizes that are known only when the model runs, and buckets: the manifest's `buckets` lists the boxes that the range of
its `dims` is cut into. A file says the least version that its reader must know.

A stored (uncompressed) zip. `manifest.json` holds the SHA-256 of every other member. The zip ends in a comment, `SEAL`
and 64 hexadecimal digits, which are the SHA-256 of every byte before those digits.

    manifest.json           format, version, model, inputs, outputs, dims, arches, requirements, versions, sections, ...
    weights.safetensors     tensors by name, aligned so that they can be mapped
    plans/<arch>.json       a plan; the second and later buckets of a range have theirs in plans/<arch>.<number>.json
    cubin/<arch>/<sha>.cubin, ptx/<sha>.ptx, src/<sha>.cu     by the SHA-256 of the source text
    anything else           extras, such as graph.txt
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from ..plan.buckets import Bucket
from ..plan.control import has_control
from ..plan.records import Plan

FORMAT = "luminal-onnx"
VERSION = 2  # the newest that is read
MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
SEAL = b"luminal-onnx sha256 "
DIGITS = 64
COMMENT_BYTES = len(SEAL) + DIGITS


def version_for(plans: Iterable[Plan], buckets: Sequence[Bucket]) -> int:
    """Return the format version of an artifact with these plans."""
    return 2 if len(buckets) > 1 or any(has_control(plan.root) for plan in plans) else 1


def plan_member(arch: str, bucket: int = 0) -> str:
    """Return the name of the section with the plan of an arch for a bucket."""
    return f"plans/{arch}.{bucket}.json" if bucket else f"plans/{arch}.json"


def cubin_member(arch: str, source: str) -> str:
    """Return the name of the section with the machine code of a kernel."""
    return f"cubin/{arch}/{source}.cubin"


def ptx_member(source: str) -> str:
    """Return the name of the section with the PTX of a kernel."""
    return f"ptx/{source}.ptx"


def source_member(source: str) -> str:
    """Return the name of the section with the CUDA C++ of a kernel."""
    return f"src/{source}.cu"


def sha256(data: bytes | memoryview) -> str:
    """Return the SHA-256 of `data` in lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()
