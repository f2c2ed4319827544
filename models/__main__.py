"""``python -m luminal_onnx.models NAME -o PATH [flags]``: write a builder's model to a file."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from . import BUILDERS, load_digits, save

_USAGE_ERROR = 64


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(_USAGE_ERROR, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the model that the arguments describe and say what was written; the exit code is 64 for a wrong flag."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    name, output = options.pop("model"), options.pop("output")
    full, trained = options.pop("full"), options.pop("trained", False)
    given = {key: value for key, value in options.items() if value is not None}
    if trained and given:
        parser.error("--trained takes no size flags: the trained model has one size")
    try:
        model = load_digits() if trained else BUILDERS[name].build(**{**(BUILDERS[name].FULL if full else {}), **given})
    except ValueError as error:
        parser.error(str(error))
    path = save(model, output)
    weights = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    print(f"{path}: {name}, {len(model.graph.node)} nodes, {weights / 1e6:.3g} MB of weights")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m luminal_onnx.models", description="Write a real architecture as an ONNX file.")
    commands = parser.add_subparsers(dest="model", required=True, metavar="MODEL", parser_class=_Parser)
    for name, module in BUILDERS.items():
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0], description=module.__doc__)
        command.add_argument("-o", "--output", type=Path, required=True, help="file to write")
        command.add_argument("--full", action="store_true", help=f"the published size: {_listed(module.FULL)}")
        if name == "digits":
            command.add_argument("--trained", action="store_true", help="the trained model instead of random weights")
        for option in dataclasses.fields(module.Config):
            command.add_argument("--" + option.name.replace("_", "-"), **_argument(option))
    return parser


def _argument(option: dataclasses.Field) -> dict[str, Any]:
    """How argparse reads one size flag. The default stays None, so that only flags given by the user reach the builder."""
    text = option.metadata["help"]
    if option.default is not None and not isinstance(option.default, bool):
        text += f" (default: {_listed(option.default)})"
    if isinstance(option.default, bool):
        return {"action": argparse.BooleanOptionalAction, "default": None, "help": text}
    if isinstance(option.default, tuple):
        return {"type": _integers, "help": text}
    kind = str if isinstance(option.default, str) else int
    return {"type": kind, "choices": option.metadata["choices"] or None, "help": text}


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _listed(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"--{key.replace('_', '-')} {_listed(entry)}" for key, entry in value.items()) or "the default"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


if __name__ == "__main__":
    sys.exit(main())
