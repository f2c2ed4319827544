"""What holds for every source file: who may import whom, what is documented, what must not be written."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Which parts a part may import besides itself; as docs/architecture.md has it.
ALLOWED = {
    "plan": set(),
    "ir": {"plan"},
    "importer": {"ir", "plan"},
    "codegen": {"ir", "runtime", "plan"},
    "runtime": {"plan"},
    "models": set(),
    "luminal_onnx": {"plan", "ir", "importer", "codegen", "runtime", "models"},
}
# Packages that only these parts may import.
HEAVY = {
    "onnx": {"importer", "models", "luminal_onnx"},
    "egglog": {"ir"},
    "scipy": {"ir"},
    "onnxruntime": {"luminal_onnx"},
    "torch": set(),
}
# The demo is a user of the public face: it shows an artifact at work.
USERS_OF_THE_FACE = {"models/digits_demo.py"}


def tracked() -> list[str]:
    """Every file of the repository, as Git lists it; elsewhere, as it lies there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    parts = [*ALLOWED, "tests", "docs", "benchmarks"]
    return [str(path.relative_to(ROOT)) for part in parts for path in (ROOT / part).rglob("*") if path.is_file()]


FILES = tracked()
SOURCES = [name for name in FILES if name.endswith(".py") and name.split("/")[0] in ALLOWED]


@lru_cache(maxsize=None)
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), name)


def imported(name: str) -> set[str]:
    """Absolute names of the modules that a source file imports, in functions too."""
    part, *inner = Path(name).parent.parts
    package = ["luminal_onnx", *([] if part == "luminal_onnx" else [part]), *inner]
    found: set[str] = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *([node.module] if node.module else [])]
            found.update(".".join([*module, alias.name]) for alias in node.names)
    return found


def forbidden(name: str, modules: set[str]) -> set[str]:
    """The modules that this file may not import."""
    part = name.split("/")[0]
    bad = set()
    for module in modules:
        top, *rest = module.split(".")
        if top == "luminal_onnx" and part != "luminal_onnx":
            other = rest[0] if rest and rest[0] in ALLOWED else "luminal_onnx"
            if other not in ALLOWED[part] | {part} and name not in USERS_OF_THE_FACE:
                bad.add(module)
        elif part not in HEAVY.get(top, ALLOWED):
            bad.add(module)
    return bad


def test_the_sources_are_found():
    assert len(SOURCES) > 100 and {name.split("/")[0] for name in SOURCES} == set(ALLOWED)


@pytest.mark.parametrize("part", ALLOWED)
def test_imports_run_one_way(part):
    bad = {name: forbidden(name, imported(name)) for name in SOURCES if name.startswith(f"{part}/")}
    assert {name: sorted(modules) for name, modules in bad.items() if modules} == {}


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("plan/dims.py", "luminal_onnx.ir.graph"),
        ("runtime/session.py", "onnx"),
        ("runtime/session.py", "luminal_onnx.codegen.compile_sources"),
        ("ir/search.py", "luminal_onnx.importer"),
        ("importer/__init__.py", "onnxruntime"),
        ("codegen/lowering.py", "luminal_onnx.pipeline"),
    ],
)
def test_a_wrong_import_would_be_found(name, module):
    assert forbidden(name, {module}) == {module}


def test_modules_and_public_names_are_documented():
    """Operator functions are what ONNX says of them, so they need no words of ours."""
    missing = []
    for name in SOURCES:
        module = tree(name)
        if module.body and ast.get_docstring(module) is None:
            missing.append(name)
        for node in module.body:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
                continue
            is_operator = any("onnx_op" in ast.unparse(decorator) for decorator in node.decorator_list)
            if not is_operator and ast.get_docstring(node) is None:
                missing.append(f"{name}:{node.lineno} {node.name}")
    assert missing == []


def test_tolerances_come_from_the_table():
    """No number is given as rtol or atol, by keyword or by assignment, outside tests/tolerances.py."""
    literal = []
    for name in FILES:
        if not name.endswith(".py") or not name.startswith(("tests/", "benchmarks/")) or name == "tests/tolerances.py":
            continue
        for node in ast.walk(tree(name)):
            pairs = []
            if isinstance(node, ast.keyword):
                pairs = [(node.arg, node.value)]
            elif isinstance(node, ast.Assign):
                pairs = [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
            for key, value in pairs:
                is_number = isinstance(value, ast.Constant) and isinstance(value.value, (int, float))
                if key in ("rtol", "atol") and is_number:
                    literal.append(f"{name}:{value.lineno}")
    assert literal == []


# Written so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
PLACES = re.compile(r"(?<![\w.])/(wo" + r"rk|ro" + r"ot)/\w")


@pytest.mark.parametrize(("what", "pattern"), [("unfinished work", UNFINISHED), ("a machine's folders", PLACES)])
def test_nothing_mentions(what, pattern):
    found = []
    for name in FILES:
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a model, an archive
        found += [f"{name}:{text[: match.start()].count(chr(10)) + 1}" for match in pattern.finditer(text)]
    assert found == [], what


def test_the_patterns_find_what_they_should():
    assert UNFINISHED.search("# TO" + "DO: later") and not UNFINISHED.search("METHODOLOGY")
    assert PLACES.search("see /wo" + "rk/main") and not PLACES.search("framework/a, src/work/b")


def test_nothing_is_left_to_write():
    """No function raises NotImplementedError or consists of an ellipsis alone, but for those of protocols."""
    stubs = []
    for name in SOURCES:
        protocols = {
            inner
            for node in ast.walk(tree(name))
            if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Raise) and node.exc is not None and "NotImplemented" in ast.unparse(node.exc):
                stubs.append(f"{name}:{node.lineno}")
            if isinstance(node, ast.FunctionDef) and node not in protocols:
                last = node.body[-1]
                if isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...:
                    stubs.append(f"{name}:{node.lineno} {node.name}")
    assert stubs == []


def test_rule_names_are_unique_and_in_kebab_case():
    from luminal_onnx.ir.egraph.rulebook import all_commands

    written = [
        name
        for file in sorted((ROOT / "ir" / "rules").glob("*.egg"))
        for name in re.findall(r':name "([^"]*)"', file.read_text())
    ]
    names = [command.rule for command in all_commands() if command.rule]
    assert len(names) > 20 and set(written) <= set(names)
    assert sorted(names) == sorted(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []
