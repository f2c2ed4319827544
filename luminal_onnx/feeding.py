"""Inputs for running an artifact: what files hold, and made-up values of fitting shapes for the others."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from luminal_onnx.plan.dims import evaluate
from luminal_onnx.plan.errors import InvalidInput
from luminal_onnx.plan.signature import InputPort, Signature
from luminal_onnx.plan.solving import solve
from luminal_onnx.sampling import ValueRange, free_symbols, sample_feeds


@dataclass(frozen=True)
class Feeds:
    """Arrays by input name, the size of each named dim, and which inputs were made up."""

    arrays: dict[str, np.ndarray]
    sizes: dict[str, int]
    made_up: list[str]


def make_feeds(
    signature: Signature,
    *,
    sizes: Mapping[str, int] | None = None,
    files: Iterable[str] = (),
    ranges: Mapping[str, ValueRange] | None = None,
    seed: int = 0,
) -> Feeds:
    """Return feeds for every input of `signature`.

    `files` are `NAME:FILE` (.npy, or raw bytes of the input's type) or .npz archives. Dims take the size that what is
    loaded has or is in `sizes`, else their opt; `ranges` bound made-up values. InvalidInput for a name that the model
    lacks, a size outside its dim's range, or a file that does not fit.
    """
    ports = {port.name: port for port in signature.inputs}
    raw, loaded = _load(files, ports)
    chosen = {name: signature.ranges[name].opt for name in free_symbols(signature.inputs)}
    asked = _checked_sizes(signature, sizes or {}, chosen)
    found = _sizes_of(loaded, ports)
    for name in asked.keys() & found.keys():
        if asked[name] != found[name]:
            raise InvalidInput(f"--dim: {name} is {asked[name]}, but {found[name]} in what --loadInputs names")
    chosen.update({**asked, **found})
    check_names("--val-range", ranges or {}, ports)
    for name, file in raw.items():
        loaded[name] = _read_raw(file, ports[name], chosen)
    missing = [port for port in signature.inputs if port.name not in loaded]
    return Feeds(
        {**sample_feeds(missing, chosen, ranges or {}, seed), **loaded}, chosen, [port.name for port in missing]
    )


def check_names(what: str, names: Iterable[str], inputs: Iterable[str]) -> None:
    """Raise InvalidInput if one of `names`, given by option `what`, is no input."""
    known = list(inputs)
    for name in names:
        if name not in known:
            raise InvalidInput(f"{what}: the model has no input {name!r}; it has: {', '.join(known) or 'none'}")


def save_arrays(path: str, names: Iterable[str], arrays: Iterable[np.ndarray]) -> None:
    """Write arrays as an .npz file under exactly `path`. InvalidInput if it cannot be written."""
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, array in zip(names, arrays):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array).reshape(array.shape))
    except OSError as error:
        raise InvalidInput(
            f"cannot write {path}: {error.strerror or error}; name a file in a folder that exists"
        ) from error


def _checked_sizes(signature: Signature, sizes: Mapping[str, int], free: Mapping[str, int]) -> dict[str, int]:
    for name, size in sizes.items():
        if name not in free:
            raise InvalidInput(
                f"--dim: the artifact has no dim {name!r} to choose; it has: {', '.join(free) or 'none'}"
            )
        bounds = signature.ranges[name]
        if not bounds.min <= size <= bounds.max:
            raise InvalidInput(
                f"--dim: {name} is {size}, the artifact was compiled for {bounds.min}..{bounds.max}; "
                f"compile with --dim {name}=MIN:OPT:MAX"
            )
    return dict(sizes)


def _sizes_of(arrays: Mapping[str, np.ndarray], ports: Mapping[str, InputPort]) -> dict[str, int]:
    """The sizes of dims as far as the shapes of loaded arrays tell; what contradicts is left for the session to refuse."""
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        for dim, size in zip(ports[name].shape, array.shape):
            solved = solve(dim, size)
            if solved is not None:
                sizes.setdefault(*solved)
    return sizes


def _load(files: Iterable[str], ports: Mapping[str, InputPort]) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Return the raw files by input, and the arrays of the others."""
    raw: dict[str, str] = {}
    loaded: dict[str, np.ndarray] = {}
    for item in files:
        name, separator, file = item.rpartition(":")
        if item.endswith(".npz") and name not in ports:
            arrays = _read_numpy(item)
            check_names(f"--loadInputs {item}", arrays, ports)
            loaded.update({name: _typed(array, ports[name]) for name, array in arrays.items()})
            continue
        if not separator or name not in ports:
            known = ", ".join(ports) or "none"
            raise InvalidInput(
                f"--loadInputs {item!r} is not NAME:FILE of an input or an .npz; the inputs are: {known}"
            )
        if file.endswith(".npy"):
            loaded[name] = _typed(_read_numpy(file)[""], ports[name])
        else:
            raw[name] = file
    return raw, loaded


def _read_numpy(file: str) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz by name, or the one of an .npy under ""."""
    try:
        content = np.load(file)
        if isinstance(content, np.ndarray):
            return {"": content}
        with content as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{file} is not a NumPy file of plain arrays; write it by np.save or np.savez") from error


def _typed(array: np.ndarray, port: InputPort) -> np.ndarray:
    """NumPy files do not name bfloat16 and its like: their elements come back as bare bytes."""
    wanted = port.dtype.numpy
    return array.view(wanted) if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize else array


def _read_raw(file: str, port: InputPort, sizes: Mapping[str, int]) -> np.ndarray:
    shape = tuple(int(evaluate(dim, sizes)) for dim in port.shape)
    expected = math.prod(shape) * port.dtype.numpy.itemsize
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror or error}") from error
    if len(data) != expected:
        dims = "".join(f" at {name}={size}" for name, size in sizes.items())
        raise InvalidInput(
            f"{file} holds {len(data)} bytes, but input {port.name!r}, {port.dtype}{list(shape)}{dims}, takes {expected}; "
            "choose sizes by --dim, or give an .npy file"
        )
    return np.frombuffer(data, port.dtype.numpy).reshape(shape)
