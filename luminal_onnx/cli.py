"""The command line. Flags carry the names that users of trtexec and Polygraphy know; exit codes are in `plan/errors.py`."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from luminal_onnx import __version__
from luminal_onnx.extras import needs_compile_extra
from luminal_onnx.options import parse_arches, parse_dims, parse_profiles, parse_ranges, parse_shapes, parse_sizes
from luminal_onnx.plan.errors import InvalidInput, LuminalError, NoDevice, UnsupportedModel, VerificationFailed

if TYPE_CHECKING:
    from luminal_onnx.feeding import Feeds
    from luminal_onnx.plan.signature import Signature
    from luminal_onnx.runtime.session import InferenceSession

EXIT_ENVIRONMENT = 3
EXIT_BAD_INPUT = 4
EXIT_USAGE = 64
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
ARTIFACT_SUFFIX = ".luminal"

logger = logging.getLogger("luminal_onnx")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="luminal-onnx %(version)s (artifact format 2)")
def cli() -> None:
    """Compile ONNX models into one file of CUDA kernels, and run that file."""


def _common(command: Callable) -> Callable:
    """Add what every command takes; --verbose is read by `main`."""
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")(command)
    return click.option("--verbose", is_flag=True, expose_value=False, help="Log phases; show tracebacks.")(command)


def _inputs(command: Callable) -> Callable:
    """Add the options that say what to run on."""
    for option in (
        click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of made-up values."),
        click.option(
            "--val-range", "value_ranges", multiple=True, metavar="NAME:[LO,HI]", help="Bound made-up values."
        ),
        click.option(
            "--loadInputs", "load_inputs", multiple=True, metavar="NAME:FILE", help=".npy, raw bytes, or one .npz."
        ),
        click.option(
            "--dim", "dims", multiple=True, metavar="NAME=SIZE", help="Size of a named dim for made-up inputs."
        ),
    ):
        command = option(command)
    return command


@cli.command("compile")
@click.argument("model", required=False, type=click.Path(dir_okay=False))
@click.option("--onnx", "onnx_path", type=click.Path(dir_okay=False), help="The model, if not given as the argument.")
@click.option(
    "-o", "--saveEngine", "output", type=click.Path(dir_okay=False), help="Artifact to write [MODEL.luminal]."
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=MIN:OPT:MAX",
    help="Bound a named dim: 8, 1:32 or 1:8:32; 1,2:8:32 makes two buckets, each with kernels chosen for its OPT.",
)
@click.option("--shapes", multiple=True, metavar="NAME:1x3x224x224,…", help="Fix the shapes of inputs.")
@click.option("--minShapes", "min_shapes", multiple=True, metavar="NAME:1x3x224x224,…", help="Least shapes of inputs.")
@click.option("--optShapes", "opt_shapes", multiple=True, metavar="NAME:…", help="Shapes to be fast at; alone: fixed.")
@click.option("--maxShapes", "max_shapes", multiple=True, metavar="NAME:…", help="Greatest shapes of inputs.")
@click.option(
    "--profile",
    "profile_numbers",
    multiple=True,
    type=click.IntRange(0),
    metavar="N",
    help="Begin another profile of the three: a bucket; the first that fits is run.",
)
@click.option("--arch", "arches", multiple=True, metavar="sm_90,…", help="GPU targets [sm_80,sm_90,sm_100].")
@click.option("--verify/--no-verify", "verify", default=True, help="Check against onnxruntime before writing [on].")
@click.option(
    "--verify-time",
    default=60.0,
    show_default=True,
    metavar="S",
    type=click.FloatRange(0),
    help="Seconds for the check.",
)
@click.option("--strict-nan", is_flag=True, help="Keep NaN in every Relu: cuBLASLt's own turns it into 0.")
@click.option("--strip-sources", is_flag=True, help="Leave out kernel sources; the CPU road then cannot run the file.")
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the inputs used for the check."
)
@click.option("--quiet", is_flag=True, help="Print errors only.")
@_common
def compile_command(
    model: str | None,
    onnx_path: str | None,
    output: str | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    min_shapes: tuple[str, ...],
    opt_shapes: tuple[str, ...],
    max_shapes: tuple[str, ...],
    profile_numbers: tuple[int, ...],
    arches: tuple[str, ...],
    verify: bool,
    verify_time: float,
    strict_nan: bool,
    strip_sources: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compile MODEL (.onnx) into an artifact, and check it against onnxruntime by running its kernels on the CPU."""
    from luminal_onnx import report
    from luminal_onnx.pipeline import Phases, compile_to

    source = _one_of(model, onnx_path)
    target = Path(output) if output else Path(source).with_suffix(ARTIFACT_SUFFIX)
    bounds = parse_dims(dims)
    profiles = parse_profiles(min_shapes, opt_shapes, max_shapes, profile_numbers)
    with report.progress(enabled=not (as_json or quiet)) as announce:
        phases = Phases(announce)
        phases.begin_with("start", process_seconds())
        artifact = compile_to(
            target,
            source,
            phases,
            dims=bounds,
            shapes=parse_shapes(shapes),
            profiles=profiles,
            arches=parse_arches(arches) or None,
            verify=verify,
            verify_seconds=verify_time,
            strict_nan=strict_nan,
            strip_sources=strip_sources,
            seed=seed,
        )
    with phases.phase("report"):
        summary = report.summarize(artifact, target)
    summary["seconds"] = phases.report()
    if as_json:
        _print_json(summary)
    elif not quiet:
        report.print_compiled(summary, source)


@cli.command()
@click.argument("artifact", required=False, type=click.Path(dir_okay=False))
@click.option("--loadEngine", "load_engine", type=click.Path(dir_okay=False), help="The artifact, if not the argument.")
@click.option("--device", default="cuda", show_default=True, type=click.Choice(["cuda", "cpu"]))
@_inputs
@click.option("--save-outputs", type=click.Path(dir_okay=False), help="Write the outputs to this .npz.")
@click.option(
    "--noCudaGraph", "no_cuda_graph", is_flag=True, help="Launch kernels one by one instead of replaying a graph."
)
@click.option("--iterations", default=1, show_default=True, type=click.IntRange(1), help="Runs; the last one is shown.")
@_common
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
    from luminal_onnx import report
    from luminal_onnx.feeding import save_arrays

    with _session(_one_of(artifact, load_engine), device, cuda_graph=not no_cuda_graph) as session:
        feeds = _feeds(session.signature, dims, load_inputs, value_ranges, seed)
        for _ in range(iterations):
            outputs = session.run(None, feeds.arrays)
        names = [port.name for port in session.signature.outputs]
        device = session.device
        read_backs = session.report()["read_backs"] // iterations
    if save_outputs:
        save_arrays(save_outputs, names, outputs)
    rows = report.describe_arrays(names, outputs)
    if as_json:
        told = {"device": device, "dims": feeds.sizes, "made_up": feeds.made_up}
        _print_json({**told, "read_backs": read_backs, "outputs": rows})
    else:
        report.print_arrays(rows, feeds, device, read_backs)


@cli.command("bench")
@click.argument("artifact", required=False, type=click.Path(dir_okay=False))
@click.option("--loadEngine", "load_engine", type=click.Path(dir_okay=False), help="The artifact, if not the argument.")
@_inputs
@click.option("--iterations", default=100, show_default=True, type=click.IntRange(1), help="Runs that are timed.")
@click.option(
    "--warmUp", "warm_up", default=200, show_default=True, metavar="MS", type=click.IntRange(0), help="Warm up so long."
)
@click.option("--dumpProfile", "dump_profile", is_flag=True, help="Also time every kernel alone, against the roofline.")
@click.option("--exportProfile", "export_profile", type=click.Path(dir_okay=False), help="Write that to a JSON file.")
@_common
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

    with _session(_one_of(artifact, load_engine), "cuda") as session:
        feeds = _feeds(session.signature, dims, load_inputs, value_ranges, seed).arrays
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
@_inputs
@click.option(
    "--verify-time",
    default=600.0,
    show_default=True,
    metavar="S",
    type=click.FloatRange(0),
    help="Seconds for the check.",
)
@_common
def verify_command(
    artifact: str,
    model: str,
    device: str,
    dims: tuple[str, ...],
    load_inputs: tuple[str, ...],
    value_ranges: tuple[str, ...],
    verify_time: float,
    seed: int,
    as_json: bool,
) -> None:
    """Compare ARTIFACT with onnxruntime running MODEL (.onnx); exit 1 if they differ or if nothing could be compared."""
    from luminal_onnx import report
    from luminal_onnx.runtime.artifact import Artifact
    from luminal_onnx.verification import given_feeds, verify

    _must_exist(artifact)
    _must_exist(model)
    opened = Artifact.open(artifact)
    ranges = parse_ranges(value_ranges)
    feeds = given_feeds(opened, model, parse_sizes(dims), load_inputs, ranges, seed) if dims or load_inputs else None
    with _advising_cpu():
        result = verify(opened, model, seconds=verify_time, seed=seed, value_ranges=ranges, feeds=feeds, device=device)
    if as_json:
        _print_json(result)
    else:
        report.print_verification(result)
        report.print_origin(result, artifact, model)
    if result["status"] != "passed":
        raise click.exceptions.Exit(VerificationFailed.exit_code)


@cli.command()
@click.argument("path", type=click.Path(dir_okay=False))
@_common
def inspect(path: str, as_json: bool) -> None:
    """Show what an artifact (or an .onnx model) holds: signature, dims, kernels, memory."""
    from luminal_onnx import report

    _must_exist(path)
    if Path(path).suffix == ".onnx":
        with needs_compile_extra("inspecting a model"):
            from luminal_onnx.importer import load
        summary = load(path).summary.to_json()
        _print_json(summary) if as_json else report.print_model(summary)
        return
    from luminal_onnx.runtime.artifact import Artifact

    details = report.details(Artifact.open(path), Path(path))
    _print_json(details) if as_json else report.print_details(details)


@cli.command()
@click.argument("model", type=click.Path(dir_okay=False))
@_common
def check(model: str, as_json: bool) -> None:
    """List everything in MODEL (.onnx) that this version cannot compile; exit 2 if there is anything."""
    from luminal_onnx import report

    with needs_compile_extra("checking a model"):
        from luminal_onnx.importer import check as check_model
    _must_exist(model)
    found = check_model(model)
    _print_json(found.to_json()) if as_json else report.print_check(found)
    if not found.ok:
        raise click.exceptions.Exit(UnsupportedModel.exit_code)


@cli.command()
@_common
def env(as_json: bool) -> None:
    """Show which libraries, compilers and GPUs were found, and which versions are needed."""
    from luminal_onnx import report
    from luminal_onnx.runtime.environment import describe

    found = describe()
    _print_json(found) if as_json else report.print_environment(found)


def _feeds(
    signature: Signature, dims: Iterable[str], load_inputs: Iterable[str], value_ranges: Iterable[str], seed: int
) -> Feeds:
    """Return what files hold for some inputs, and made-up values for the others."""
    from luminal_onnx.feeding import make_feeds

    return make_feeds(
        signature, sizes=parse_sizes(dims), files=load_inputs, ranges=parse_ranges(value_ranges), seed=seed
    )


def _session(path: str, device: str, **options: Any) -> InferenceSession:
    from luminal_onnx.runtime.session import InferenceSession

    with _advising_cpu():
        return InferenceSession(path, device=device, **options)


@contextmanager
def _advising_cpu() -> Iterator[None]:
    """Say what a missing GPU means in this command line's words."""
    try:
        yield
    except NoDevice as error:
        takes_device = any(option.name == "device" for option in click.get_current_context().command.params)
        advice = "name --device cpu" if takes_device else "use `run --device cpu`"
        raise NoDevice(str(error).replace('name device="cpu"', advice)) from error


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
    click.echo(json.dumps(_plain(value), indent=2, default=str, allow_nan=False))


def _plain(value: Any) -> Any:
    """JSON has no word for infinities and NaN: they become the texts that Python's `float` reads."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code: 0 ok, 1 mismatch, 2 unsupported, 3 environment, 4 bad input, 64 usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    verbose = "--verbose" in arguments
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if verbose:
        logger.setLevel(logging.INFO)
    try:
        code = cli.main(arguments, prog_name="luminal-onnx", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = EXIT_USAGE
    except click.Abort:
        click.echo("interrupted; nothing was written", err=True)
        code = EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit):  # click's word for it: whoever reads our output, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except LuminalError as error:
        code = _failed(str(error), error.exit_code, arguments)
    except OSError as error:
        what = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        code = _failed(what, EXIT_BAD_INPUT, arguments)
    except MemoryError:
        code = _failed("out of memory; choose smaller sizes by --dim", EXIT_ENVIRONMENT, arguments)
    except Exception as error:  # what is not ours is a bug, and must not end in a traceback
        if verbose:
            logger.exception("internal error")
        code = _failed(
            f"internal: {type(error).__name__}: {error}\nThis is a bug; rerun with --verbose and report the traceback.",
            EXIT_INTERNAL,
            arguments,
        )
    sys.exit(code or 0)


def _failed(message: str, code: int, arguments: list[str]) -> int:
    """Tell of an error, with --json as an object too, and return the exit code."""
    click.echo(f"error: {message}", err=True)
    if "--json" in arguments:
        _print_json({"error": message, "exit_code": code})
    return code
