"""The artifact file: what is written is read back, and no altered, cut or foreign file is taken."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import mmap
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import handmade_artifact as handmade
import ml_dtypes
import numpy as np
import pytest
import tolerances
from luminal_onnx.codegen.artifact import write_artifact
from luminal_onnx.plan.buckets import hull
from luminal_onnx.plan.dims import Range
from luminal_onnx.plan.errors import InvalidArtifact, InvalidInput, LuminalError, UnfitEnvironment
from luminal_onnx.plan.signature import signature_of
from luminal_onnx.runtime.artifact import Artifact
from luminal_onnx.runtime.artifact_format import DIGITS, SEAL
from luminal_onnx.runtime.session import InferenceSession


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return handmade.write(tmp_path_factory.mktemp("artifact") / "model.luminal")


@pytest.fixture(scope="module")
def data(path):
    return path.read_bytes()


def seal(body: bytes) -> bytes:
    """Close bytes that end in a seal with the right digest."""
    return body[:-DIGITS] + hashlib.sha256(body[:-DIGITS]).hexdigest().encode()


def test_everything_written_is_read_back(path):
    with Artifact.open(path) as artifact:
        assert artifact.arches == handmade.ARCHES
        for arch in handmade.ARCHES:
            assert artifact.plan(arch) == handmade.plan(arch)
        for source, text in handmade.SOURCES.items():
            assert artifact.source(source) == text
            assert artifact.cubin("sm_90", source) is None and artifact.ptx(source) is None
        assert dict(artifact.weights).keys() == {"w", "b"}
        for name, value in handmade.weights().items():
            np.testing.assert_array_equal(artifact.weights[name], value)
            assert artifact.weights[name].dtype == value.dtype
        assert artifact.extra("graph.txt") == b"x -> y\n"
        manifest = artifact.manifest
        assert (manifest["format"], manifest["version"]) == ("luminal-onnx", 1)
        assert manifest["inputs"] == [
            {"name": "x", "dtype": "float32", "type": "tensor(float)", "shape": ["batch", handmade.FEATURES]}
        ]
        assert manifest["dims"] == {"batch": [0, 4, 64]}
        assert manifest["requires"] == {"cuda": "13.0", "driver": "580", "libraries": ["cublasLt"]}
        assert manifest["model"]["name"] == "handmade"
        artifact.check()


@pytest.mark.parametrize("form", ["path", "str", "bytes", "file", "artifact"])
def test_every_form_of_source_opens(path, data, form):
    sources = {"path": path, "str": str(path), "bytes": data, "file": io.BytesIO(data), "artifact": Artifact.open(path)}
    artifact = Artifact.open(sources[form])
    np.testing.assert_array_equal(artifact.weights["w"], handmade.weights()["w"])


def test_equal_contents_give_equal_bytes_and_save_copies_them(path, data, tmp_path):
    assert handmade.write(tmp_path / "again.luminal").read_bytes() == data
    Artifact.open(path).save(tmp_path / "saved.luminal")
    assert (tmp_path / "saved.luminal").read_bytes() == data
    Artifact.open(tmp_path / "saved.luminal").save(tmp_path / "saved.luminal")
    assert (tmp_path / "saved.luminal").read_bytes() == data
    assert sorted(os.listdir(tmp_path)) == ["again.luminal", "saved.luminal"]


def test_any_zip_tool_reads_it(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
        manifest = json.loads(archive.read("manifest.json"))
        assert set(manifest["sections"]) == set(archive.namelist()) - {"manifest.json"}
        for name, section in manifest["sections"].items():
            assert hashlib.sha256(archive.read(name)).hexdigest() == section["sha256"]


DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8"]
DTYPES += ["uint64", "uint32", "uint16", "uint8", "bool"]


def test_weights_of_every_dtype_keep_their_bits_and_lie_aligned(tmp_path):
    generator = np.random.default_rng(3)
    weights = {}
    for name in DTYPES:
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        for shape in [(), (0, 3), (5,), (4, 8), (3, 5, 7)]:
            raw = generator.integers(0, 2 if name == "bool" else 256, int(np.prod(shape)) * dtype.itemsize, np.uint8)
            weights[f"{name}{shape}"] = raw.view(dtype).reshape(shape)
    weights["transposed"] = np.arange(12, dtype=np.float32).reshape(3, 4).T
    weights["big endian"] = np.arange(6, dtype=">i4")
    path = tmp_path / "weights.luminal"
    write_artifact(
        path, manifest_info={}, plans={"sm_90": handmade.plan()}, cubins={}, ptx={}, sources=handmade.SOURCES,
        weights={**weights, **handmade.weights()}
    )  # fmt: skip
    artifact = Artifact.open(path)
    for name, value in weights.items():
        read = artifact.weights[name]
        assert read.shape == value.shape and read.dtype == value.dtype.newbyteorder("=")
        assert read.tobytes() == value.astype(read.dtype).tobytes()
        assert not read.flags.writeable and read.flags.aligned
        if value.nbytes % 64 == 0 and value.nbytes:
            assert read.__array_interface__["data"][0] % 64 == 0
    base = artifact.weights["transposed"]
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert isinstance(getattr(base, "obj", base), mmap.mmap)


def test_safetensors_itself_reads_the_weights_member(path):
    safetensors = pytest.importorskip("safetensors.numpy")
    with zipfile.ZipFile(path) as archive:
        tensors = safetensors.load(archive.read("weights.safetensors"))
    np.testing.assert_array_equal(tensors["w"], handmade.weights()["w"])


def test_every_flipped_byte_is_found(data):
    generator = random.Random(1)
    positions = sorted({*range(0, len(data), 97), *range(len(data) - 400, len(data)), *range(64)})
    for position in positions:
        altered = bytearray(data)
        altered[position] ^= 1 << generator.randrange(8)
        with pytest.raises(InvalidArtifact):
            Artifact.open(bytes(altered))


def test_every_truncation_is_found(data):
    for size in sorted({*range(0, len(data), 211), *range(len(data) - 200, len(data)), *range(40)}):
        with pytest.raises(InvalidArtifact):
            Artifact.open(data[:size])
    with pytest.raises(InvalidArtifact, match="truncated"):
        Artifact.open(data[: len(data) // 2])
    with pytest.raises(InvalidArtifact, match="truncated"):
        Artifact.open(data + b"\0")


def test_an_altered_section_is_named(data):
    begin = data.index(handmade.SCALE_SHIFT.encode())
    altered = data[:begin] + b" " + data[begin + 1 :]
    with pytest.raises(InvalidArtifact, match=r"section src/[0-9a-f]{64}\.cu was altered: expected SHA-256 .* got "):
        Artifact.open(altered)
    begin = data.index(handmade.weights()["w"].tobytes())
    with pytest.raises(InvalidArtifact, match=r"section weights\.safetensors was altered"):
        Artifact.open(data[: begin + 9] + bytes([data[begin + 9] ^ 1]) + data[begin + 10 :])


def rewrite(data: bytes, change) -> bytes:
    """Return the artifact with its manifest changed, sealed again."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        new.comment = SEAL + b"0" * DIGITS
        for name in old.namelist():
            content = old.read(name)
            if name == "manifest.json":
                manifest = json.loads(content)
                change(manifest)
                content = json.dumps(manifest).encode()
            new.writestr(name, content)
    return seal(out.getvalue())


def test_foreign_and_newer_files_are_named(data, tmp_path):
    with pytest.raises(InvalidArtifact, match="version 3, this release reads versions up to 2; upgrade"):
        Artifact.open(rewrite(data, lambda manifest: manifest.update(version=3)))
    for version in (1, 2):
        Artifact.open(rewrite(data, lambda manifest, version=version: manifest.update(version=version))).check()
    with pytest.raises(InvalidArtifact, match="expected format 'luminal-onnx', got 'other'"):
        Artifact.open(rewrite(data, lambda manifest: manifest.update(format="other")))
    with pytest.raises(InvalidArtifact, match="sections differ"):
        Artifact.open(rewrite(data, lambda manifest: manifest["sections"].pop("graph.txt")))
    with pytest.raises(InvalidArtifact, match="not a luminal-onnx artifact: expected a zip"):
        Artifact.open(b"\x08\x07\x12\x04onnx")
    with pytest.raises(InvalidArtifact, match="is empty"):
        (tmp_path / "empty").touch()
        Artifact.open(tmp_path / "empty")
    with pytest.raises(InvalidArtifact, match="cannot open artifact .*: No such file"):
        Artifact.open(tmp_path / "absent.luminal")
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(InvalidArtifact, match="another kind of zip"):
        Artifact.open(plain.getvalue())
    with pytest.raises(InvalidArtifact, match="has no plan for sm_75; it has sm_80, sm_90, sm_100"):
        Artifact.open(data).plan("sm_75")


def test_a_consistent_digest_does_not_hide_a_wrong_section(data):
    def lie(manifest):
        manifest["sections"]["graph.txt"]["sha256"] = "0" * 64

    with pytest.raises(InvalidArtifact, match="section graph.txt was altered"):
        Artifact.open(rewrite(data, lie)).check()


def test_a_closed_artifact_says_so(path):
    artifact = Artifact.open(path)
    weight = artifact.weights["w"]
    artifact.close()
    with pytest.raises(InvalidArtifact, match="is closed"):
        artifact.source("0")
    np.testing.assert_array_equal(weight, handmade.weights()["w"])


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    target = tmp_path / "model.luminal"
    target.write_bytes(b"older")
    arguments = {"manifest_info": {}, "plans": {"sm_90": handmade.plan()}, "cubins": {}, "ptx": {}}
    arguments["sources"] = handmade.SOURCES
    with pytest.raises(InvalidInput, match="cannot write .*nowhere.*No such file or directory; name a file"):
        write_artifact(tmp_path / "nowhere" / "model.luminal", **arguments, weights=handmade.weights())
    with pytest.raises(LuminalError, match="needs weight 'b'"):
        write_artifact(target, **arguments, weights={"w": handmade.weights()["w"]})
    with pytest.raises(LuminalError, match="expects float32"):
        write_artifact(target, **arguments, weights={**handmade.weights(), "b": np.zeros(3)})
    with pytest.raises(LuminalError, match="has no code"):
        write_artifact(target, **{**arguments, "sources": {}}, weights=handmade.weights())
    with pytest.raises(LuminalError, match="'format' is the format's own"):
        write_artifact(target, **{**arguments, "manifest_info": {"format": 1}}, weights=handmade.weights())
    assert target.read_bytes() == b"older" and os.listdir(tmp_path) == ["model.luminal"]


@pytest.mark.parametrize("thing", [None, 3, ["model.luminal"]])
def test_what_is_no_artifact_at_all_is_refused(thing):
    with pytest.raises(InvalidInput, match=f"path, bytes .* not {type(thing).__name__}"):
        Artifact.open(thing)


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("luminal_onnx.codegen.artifact._seal", full)
    with pytest.raises(UnfitEnvironment, match="No space left on device; make room"):
        handmade.write(tmp_path / "model.luminal")
    assert os.listdir(tmp_path) == []


def test_an_artifact_of_the_first_format_always_loads():
    """Written once, by the release that made version 1: whatever changes, it is read as it was meant."""
    artifact = Artifact.open(Path(__file__).parent / "data" / "format_v1.luminal")
    artifact.check()
    assert artifact.manifest["version"] == 1
    for arch in ("sm_80", "sm_90", "sm_100"):
        plan = artifact.plan(arch)
        assert [step.origin for step in plan.steps()] == [("mul", "add"), ("gemm",), ("relu",), ("count",)]
        assert str(plan.outputs[3].shape[0]) == f"{handmade.FEATURES}*batch"
        for step in plan.steps():
            if hasattr(step, "kernel"):
                assert artifact.cubin(arch, step.kernel.source)[:4] == b"\x7fELF"
                assert b".visible .entry" in artifact.ptx(step.kernel.source)
                assert "__global__" in artifact.source(step.kernel.source)
    np.testing.assert_array_equal(artifact.weights["b"], handmade.weights()["b"])


def test_opening_imports_nothing_of_the_compiler(path):
    program = (
        "import sys; from luminal_onnx.runtime.artifact import Artifact; "
        "a = Artifact.open(sys.argv[1]); a.plan('sm_90'); a.weights['w']; import luminal_onnx.runtime.session; "
        "print(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    loaded = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True).stdout
    forbidden = {"onnx", "egglog", "scipy", "sympy", "onnxruntime", "torch", "nvmath", "cuda"}
    assert not forbidden & set(loaded.split())


def write_in_buckets(path, *ranges):
    """Write the hand-made plan once for each of these ranges of its batch."""
    buckets = [{"batch": Range(*sizes)} for sizes in ranges]
    plans = {
        arch: [dataclasses.replace(handmade.plan(arch), ranges=bucket) for bucket in buckets]
        for arch in handmade.ARCHES
    }
    write_artifact(
        path, manifest_info={}, plans=plans, cubins={}, ptx={}, sources=handmade.SOURCES, weights=handmade.weights(),
        signature=dataclasses.replace(signature_of(handmade.plan()), ranges=hull(buckets)), buckets=buckets,
    )  # fmt: skip
    return path


def test_every_bucket_has_a_plan_and_the_session_picks_it_by_the_shapes_fed(tmp_path):
    path = write_in_buckets(tmp_path / "model.luminal", (0, 1, 1), (2, 4, 7), (8, 8, 64))
    with Artifact.open(path) as artifact:
        artifact.check()
        assert artifact.manifest["version"] == 2 and artifact.manifest["dims"] == {"batch": [0, 8, 64]}
        assert [plan.ranges for plan in artifact.plans("sm_80")] == list(artifact.buckets)
    with InferenceSession(path, device="cpu") as session:
        assert session.get_inputs()[0].shape == ["batch", handmade.FEATURES]
        for batch, bucket in ((0, 0), (1, 0), (2, 1), (7, 1), (8, 2), (64, 2)):
            x = handmade.feed(batch)
            y, *_ = session.run(None, {"x": x})
            tolerances.assert_close(y, handmade.expected(x)[0], tolerances.REDUCTION, vacuous_ok=not x.size)
            bound, _ = session._prepare({"x": x})
            assert bound.plan is session._plans[bucket]
        weights = handmade.weights()
        assert session.memory_bytes()["weights"] == sum(array.nbytes for array in weights.values())
        with pytest.raises(InvalidInput, match=r"Expected: batch in 0\.\.64 Got: 65"):
            session.run(None, {"x": handmade.feed(65)})


def test_buckets_that_are_not_the_range_are_neither_written_nor_opened(tmp_path):
    path = tmp_path / "model.luminal"
    with pytest.raises(LuminalError, match="no bucket holds batch 4"):
        write_in_buckets(path, (0, 1, 3), (5, 8, 64))
    with pytest.raises(LuminalError, match="two buckets hold batch 3"):
        write_in_buckets(path, (0, 1, 3), (3, 8, 64))
    assert not path.exists()
    data = write_in_buckets(path, (0, 1, 3), (4, 8, 64)).read_bytes()
    Artifact.open(data)

    def narrow(low, high):
        return rewrite(data, lambda manifest: manifest["buckets"][0].update(batch=[low, low, high]))

    with pytest.raises(InvalidArtifact, match="its buckets are not its range: no bucket holds batch 3"):
        Artifact.open(narrow(0, 2))
    with pytest.raises(InvalidArtifact, match="its buckets are not its range: two buckets hold batch 4"):
        Artifact.open(narrow(0, 4))
    other_opt = Artifact.open(rewrite(data, lambda manifest: manifest["buckets"][0].update(batch=[0, 2, 3])))
    with pytest.raises(InvalidArtifact, match="cannot be read .*the plan has batch in"):
        other_opt.plan("sm_90")
