"""The command line. Flags carry the names that users of trtexec and Polygraphy know; exit codes are in `plan/errors.py`."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from luminal_onnx import __version__
from luminal_onnx.plan.errors import InvalidInput, LuminalError, VerificationFailed

if TYPE_CHECKING:
    from luminal_onnx.plan.records import Plan

EXIT_USAGE = 64
EXIT_INTERNAL = 70
ARTIFACT_SUFFIX = ".luminal"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="luminal-onnx %(version)s (artifact format 1)")
def cli() -> None:
    """Compile ONNX models into one file of CUDA kernels, and run that file."""


def _json_option(command: Callable) -> Callable:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")(command)


def _verbosity(command: Callable) -> Callable:
    command = click.option("--quiet", is_flag=True, help="Print errors only.")(command)
    return click.option("--verbose", is_flag=True, help="Log what each phase does.")(command)


@cli.command("compile")
@click.argument("model", required=False, type=click.Path(dir_okay=False))
@click.option("--onnx", "onnx_path", type=click.Path(dir_okay=False), help="The model, if not given as the argument.")
@click.option("-o", "--saveEngine", "output", type=click.Path(dir_okay=False), help="Artifact to write [MODEL.luminal].")
@click.option("--dim", "dims", multiple=True, metavar="NAME=MIN:OPT:MAX", help="Bound a named dim: 8, 1:32 or 1:8:32.")
@click.option("--shapes", multiple=True, metavar="NAME:1x3x224x224,…", help="Fix the shapes of inputs.")
@click.option("--arch", "arches", multiple=True, metavar="sm_90,…", help="GPU targets [sm_80,sm_90,sm_100].")
@click.option("--verify/--no-verify", "verify", default=True, help="Check against onnxruntime before writing [on].")
@click.option("--verify-time", default=60.0, show_default=True, metavar="S", help="Seconds that the check may take.")
@click.option("--strip-sources", is_flag=True, help="Leave out kernel sources; the CPU road then cannot run the file.")
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs used for the check.")
@_json_option
@_verbosity
def compile_command(
    model: str | None,
    onnx_path: str | None,
    output: str | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    arches: tuple[str, ...],
    verify: bool,
    verify_time: float,
    strip_sources: bool,
    seed: int,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Compile MODEL (.onnx) into an artifact, and check it against onnxruntime by running its kernels on the CPU."""
    from luminal_onnx import report
    from luminal_onnx.pipeline import Phases, compile_to

    source = _one_of(model, onnx_path)
    target = Path(output) if output else Path(source).with_suffix(ARTIFACT_SUFFIX)
    with report.progress(enabled=not (as_json or quiet)) as announce:
        phases = Phases(announce)
        phases.begin_with("start", process_seconds())
        artifact = compile_to(
            target,
            source,
            phases,
            dims=parse_dims(dims),
            shapes=parse_shapes(shapes),
            arches=[arch for item in arches for arch in item.split(",")] or None,
            verify=verify,
            verify_seconds=verify_time,
            strip_sources=strip_sources,
            seed=seed,
        )
    summary = {**report.summarize(artifact, target), "seconds": phases.report()}
    if as_json:
        _print_json(summary)
    elif not quiet:
        report.print_compiled(summary)


@cli.command()
@click.argument("artifact", required=False, type=click.Path(dir_okay=False))
@click.option("--loadEngine", "load_engine", type=click.Path(dir_okay=False), help="The artifact, if not the argument.")
@click.option("--device", default="cuda", show_default=True, type=click.Choice(["cuda", "cpu"]))
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="Size of a symbolic dim for made-up inputs.")
@click.option("--loadInputs", "load_inputs", multiple=True, metavar="NAME:FILE", help=".npy or raw file per input; or one .npz.")
@click.option("--val-range", "value_ranges", multiple=True, metavar="NAME:[LO,HI]", help="Range of made-up values.")
@click.option("--save-outputs", type=click.Path(dir_okay=False), help="Write the outputs to this .npz.")
@click.option("--noCudaGraph", "no_cuda_graph", is_flag=True, help="Launch kernels one by one instead of replaying a graph.")
@click.option("--iterations", default=1, show_default=True, help="Runs; the last one's outputs are shown.")
@click.option("--seed", default=0, show_default=True, help="Seed of made-up inputs.")
@_json_option
def run(
    artifact: str | None,
    load_engine: str | None,
    device: str,
    dims: tuple[str, ...],
    load_inputs: tuple[str, ...],
    value_ranges: tuple[str, ...],
    save_outputs: str | None,
    no_cuda_graph: bool,
    iterations: int,
    seed: int,
    as_json: bool,
) -> None:
    """Run ARTIFACT on given or made-up inputs and print what comes out."""
    import numpy as np

    from luminal_onnx import report
    from luminal_onnx.runtime.session import InferenceSession

    with InferenceSession(_one_of(artifact, load_engine), device=device, cuda_graph=not no_cuda_graph) as session:
        plan = session.plan
        feeds = _feeds(plan, dims, load_inputs, value_ranges, seed)
        for _ in range(max(iterations, 1)):
            outputs = session.run(None, feeds)
        names = [port.name for port in plan.outputs]
    if save_outputs:
        np.savez(save_outputs, **dict(zip(names, outputs)))
    rows = report.describe_arrays(names, outputs)
    if as_json:
        _print_json({"device": device, "outputs": rows})
    else:
        report.print_arrays(rows, device)


@cli.command("bench")
@click.argument("artifact", required=False, type=click.Path(dir_okay=False))
@click.option("--loadEngine", "load_engine", type=click.Path(dir_okay=False), help="The artifact, if not the argument.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="Size of a named dim [its opt].")
@click.option("--loadInputs", "load_inputs", multiple=True, metavar="NAME:FILE", help=".npy or raw file per input; or one .npz.")
@click.option("--val-range", "value_ranges", multiple=True, metavar="NAME:[LO,HI]", help="Range of made-up values.")
@click.option("--iterations", default=100, show_default=True, type=click.IntRange(1), help="Runs that are timed.")
@click.option("--warmUp", "warm_up", default=200, show_default=True, metavar="MS", type=click.IntRange(0), help="Warm up so long.")
@click.option("--dumpProfile", "dump_profile", is_flag=True, help="Also time every kernel alone, against the roofline.")
@click.option("--exportProfile", "export_profile", type=click.Path(dir_okay=False), help="Write that to a JSON file.")
@click.option("--seed", default=0, show_default=True, help="Seed of made-up inputs.")
@_json_option
def bench_command(
    artifact: str | None,
    load_engine: str | None,
    dims: tuple[str, ...],
    load_inputs: tuple[str, ...],
    value_ranges: tuple[str, ...],
    iterations: int,
    warm_up: int,
    dump_profile: bool,
    export_profile: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Time ARTIFACT on the GPU, its inputs lying there: latency by events around each run, throughput of runs in a row."""
    from luminal_onnx.bench import bench, format_bench
    from luminal_onnx.profile import format_profile
    from luminal_onnx.runtime.session import InferenceSession

    with InferenceSession(_one_of(artifact, load_engine)) as session:
        feeds = _feeds(session.plan, dims, load_inputs, value_ranges, seed)
        wants_profile = dump_profile or export_profile is not None
        found = bench(session, feeds, iterations, warm_up / 1e3, profiled=wants_profile)
    if export_profile is not None:
        Path(export_profile).write_text(json.dumps(found["profile"], indent=1))
    if as_json:
        _print_json(found)
        return
    click.echo(format_bench(found))
    if dump_profile:
        click.echo("\n" + format_profile(found["profile"]))


@cli.command("verify")
@click.argument("artifact", type=click.Path(dir_okay=False))
@click.argument("model", type=click.Path(dir_okay=False))
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cuda", "cpu"]))
@click.option("--loadInputs", "load_inputs", multiple=True, metavar="NAME:FILE", help=".npy or raw file per input; or one .npz.")
@click.option("--val-range", "value_ranges", multiple=True, metavar="NAME:[LO,HI]", help="Range of made-up values.")
@click.option("--verify-time", default=600.0, show_default=True, metavar="S", help="Seconds that the check may take.")
@click.option("--seed", default=0, show_default=True)
@_json_option
def verify_command(
    artifact: str,
    model: str,
    device: str,
    load_inputs: tuple[str, ...],
    value_ranges: tuple[str, ...],
    verify_time: float,
    seed: int,
    as_json: bool,
) -> None:
    """Compare ARTIFACT with onnxruntime running MODEL (.onnx); exit 1 if they differ."""
    from luminal_onnx import report
    from luminal_onnx.runtime.artifact import Artifact
    from luminal_onnx.verification import verify

    _must_exist(model)
    opened = Artifact.open(artifact)
    dtypes = {port.name: port.dtype.numpy for port in opened.plan(opened.arches[0]).inputs}
    feeds = [_load_inputs(load_inputs, dtypes)] if load_inputs else None
    result = verify(
        opened, model, seconds=verify_time, seed=seed, value_ranges=parse_ranges(value_ranges), feeds=feeds, device=device
    )
    if as_json:
        _print_json(result)
    else:
        report.print_verification(result)
    if result["status"] == "mismatch":
        raise click.exceptions.Exit(VerificationFailed.exit_code)


@cli.command()
@click.argument("path", type=click.Path(dir_okay=False))
@_json_option
def inspect(path: str, as_json: bool) -> None:
    """Show what an artifact (or an .onnx model) holds: signature, dims, kernels, memory."""
    from luminal_onnx import report

    _must_exist(path)
    if Path(path).suffix == ".onnx":
        from luminal_onnx.importer import load

        summary = load(path).summary.to_json()
        _print_json(summary) if as_json else report.print_model(summary)
        return
    from luminal_onnx.runtime.artifact import Artifact

    details = report.details(Artifact.open(path), Path(path))
    _print_json(details) if as_json else report.print_details(details)


@cli.command()
@click.argument("model", type=click.Path(dir_okay=False))
@_json_option
def check(model: str, as_json: bool) -> None:
    """List everything in MODEL (.onnx) that this version cannot compile; exit 2 if there is anything."""
    from luminal_onnx import report
    from luminal_onnx.importer import check as check_model

    _must_exist(model)
    found = check_model(model)
    _print_json(found.to_json()) if as_json else report.print_check(found)
    if not found.ok:
        raise click.exceptions.Exit(2)


@cli.command()
@_json_option
def env(as_json: bool) -> None:
    """Show which libraries, compilers and GPUs were found, and which versions are needed."""
    from luminal_onnx import report
    from luminal_onnx.runtime.environment import describe

    found = describe()
    _print_json(found) if as_json else report.print_environment(found)


def parse_dims(items: Iterable[str]) -> dict[str, Any]:
    """Parse `batch=8`, `batch=1:32`, `batch=1:8:32` and expressions such as `H=32*h`, also several joined by commas."""
    dims: dict[str, Any] = {}
    for item in (part for text in items for part in text.split(",")):
        name, separator, sizes = item.partition("=")
        if separator and name and ":" not in sizes and any(character.isalpha() for character in sizes):
            dims[name] = sizes
            continue
        numbers = sizes.split(":")
        if not separator or not name or len(numbers) > 3 or not all(number.isdigit() for number in numbers):
            raise InvalidInput(f"--dim {item!r} is not NAME=SIZE, NAME=MIN:MAX or NAME=MIN:OPT:MAX")
        values = tuple(map(int, numbers))
        if list(values) != sorted(values):
            raise InvalidInput(f"--dim {item!r}: sizes must not fall from min to opt to max")
        dims[name] = values[0] if len(values) == 1 else values
    return dims


def parse_shapes(items: Iterable[str]) -> dict[str, list[int]]:
    """Parse trtexec's `name:1x3x224x224,other:scalar`."""
    shapes: dict[str, list[int]] = {}
    for item in (part for text in items for part in text.split(",")):
        name, separator, text = item.rpartition(":")
        sizes = [] if text == "scalar" else text.split("x")
        if not separator or not name or not all(size.isdigit() for size in sizes):
            raise InvalidInput(f"--shapes {item!r} is not NAME:1x3x224x224 or NAME:scalar")
        shapes[name] = [int(size) for size in sizes]
    return shapes


def parse_ranges(items: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Parse Polygraphy's `name:[lo,hi]`."""
    ranges = {}
    for item in items:
        name, separator, text = item.rpartition(":")
        try:
            low, high = (float(number) for number in text.strip("[]()").split(","))
        except ValueError:
            separator = ""
        if not separator or not name or not low <= high:
            raise InvalidInput(f"--val-range {item!r} is not NAME:[LO,HI] with LO <= HI")
        ranges[name] = (low, high)
    return ranges


def _feeds(
    plan: Plan, dims: Iterable[str], load_inputs: Iterable[str], value_ranges: Iterable[str], seed: int
) -> dict[str, Any]:
    """Return what files hold for some inputs, and made-up values for the others."""
    from luminal_onnx.sampling import free_symbols, sample_feeds

    sizes = {name: plan.ranges[name].opt for name in free_symbols(plan.inputs)}
    sizes.update({name: value for name, value in parse_dims(dims).items() if isinstance(value, int)})
    loaded = _load_inputs(load_inputs, {port.name: port.dtype.numpy for port in plan.inputs})
    return {**sample_feeds(plan.inputs, sizes, parse_ranges(value_ranges), seed), **loaded}


def _load_inputs(items: Iterable[str], dtypes: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    feeds: dict[str, Any] = {}
    for item in items:
        if item.endswith(".npz"):
            _must_exist(item)
            with np.load(item) as archive:
                feeds.update({name: archive[name] for name in archive.files})
            continue
        name, separator, file = item.rpartition(":")
        if not separator or name not in dtypes:
            known = ", ".join(dtypes)
            raise InvalidInput(f"--loadInputs {item!r} is not NAME:FILE of an input; the inputs are: {known}")
        _must_exist(file)
        feeds[name] = np.load(file) if file.endswith(".npy") else np.fromfile(file, dtypes[name])
    unknown = set(feeds) - set(dtypes)
    if unknown:
        raise InvalidInput(f"--loadInputs names {sorted(unknown)}; the inputs are: {', '.join(dtypes)}")
    return feeds


def _one_of(argument: str | None, option: str | None) -> str:
    if (argument is None) == (option is None):
        raise click.UsageError("name exactly one file, as the argument or by its option")
    path = argument or option
    _must_exist(path)
    return path


def _must_exist(path: str) -> None:
    if not Path(path).is_file():
        raise InvalidInput(f"no such file: {path}")


def process_seconds() -> float:
    """Return how long this process has been running; 0 where the system does not tell."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, AttributeError):
        return 0.0


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code: 0 ok, 1 mismatch, 2 unsupported, 3 environment, 4 bad input, 64 usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if "--verbose" in arguments:
        logging.getLogger("luminal_onnx").setLevel(logging.INFO)
    try:
        code = cli.main(arguments, prog_name="luminal-onnx", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = EXIT_USAGE
    except click.Abort:
        click.echo("interrupted; nothing was written", err=True)
        code = 130
    except LuminalError as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    except Exception as error:
        logging.getLogger(__name__).debug("traceback", exc_info=True)
        if "--verbose" in arguments:
            logging.exception("internal error")
        click.echo(
            f"internal error: {type(error).__name__}: {error}\nThis is a bug; rerun with --verbose and report the traceback.",
            err=True,
        )
        code = EXIT_INTERNAL
    sys.exit(code or 0)
