"""Checks what linters do not: invariants are cited, fault points are tested, generated files are current, sizes hold.

Prints every problem and exits 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).parent.parent
README_LINES = 150
SOURCE_LINES = 500
TEST_LINES = 800
FOLDER_MODULES, SUB_FOLDERS, FAMILY = 16, 14, 3
BANNED_NAMES = re.compile(r"(^|/)(utils?|common|helpers?|misc|base|core|manager|legacy|v2)(\.py|/)")
LEFT_OVER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
LEASE_RULES = re.compile(r"SKIP LOCKED|lease_until\s*(<|>|=|\bIS\b)|lease_token\s*(<|=|\bIS\b)")
LEASE_TIMES = re.compile(r"\blease_until\b")
SERVER_FIXTURES = {"postgres_server", "nats_url", "spark_master"}
STARTS_SERVER = re.compile(r"mark\.service\b|noetl\.testing\.servers\.(?:s3|kafka)\b|\bmoto\.server\b")
READS_LEASE_TIMES = {
    "src/noetl/api/routes/workers/lease_proofs.py": "a worker is told until when its lease lasts",
    "src/noetl/api/routes/workers/commands.py": "shown",
    "src/noetl/api/routes/workers/stage_frames.py": "shown",
    "src/noetl/pipelines/tasks/rows.py": "shown",
    "src/noetl/services/schedule/rows.py": "shown",
    "src/noetl/services/schedule/lost_runs.py": "planning.verdict, which is pure, decides about a slot as it was read",
}


def tracked(*patterns: str) -> list[Path]:
    """List the files git knows, or would add, that match."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [ROOT / name for name in dict.fromkeys(names) if (ROOT / name).is_file()]


def invariants() -> Iterator[str]:
    """Every invariant is cited by a test, and every citation has its invariant."""
    stated = set(re.findall(r"\*\*(INV-\d+)\*\*", (ROOT / "docs/invariants.md").read_text()))
    cited: set[str] = set()
    for path in [*tracked("tests/*.py"), *tracked("src/noetl/testing/*.py")]:
        cited |= set(re.findall(r"INV-\d+", path.read_text()))
    yield from (f"docs/invariants.md: {name} is cited by no test" for name in sorted(stated - cited))
    yield from (f"tests cite {name}, which docs/invariants.md does not state" for name in sorted(cited - stated))


def fault_points() -> Iterator[str]:
    """Every fault point stands in the product and in a test that dies or stops there."""
    from noetl.faults import POINTS

    source = "\n".join(path.read_text() for path in tracked("src/noetl/*.py") if path.name != "faults.py")
    tests = "\n".join(path.read_text() for path in tracked("tests/*.py"))
    for point in POINTS:
        if f'reach("{point}")' not in source:
            yield f"src/noetl/faults.py: nothing reaches {point}"
        if point not in tests:
            yield f"src/noetl/faults.py: no test stops at {point}"


def sizes() -> Iterator[str]:
    """Files stay readable in one sitting."""
    for path in tracked("*.py"):
        limit = TEST_LINES if "tests" in path.parts else SOURCE_LINES
        lines = len(path.read_text().splitlines())
        if lines > limit:
            yield f"{path.relative_to(ROOT)}: {lines} lines, more than {limit}"
    readme = len((ROOT / "README.md").read_text().splitlines())
    if readme >= README_LINES:
        yield f"README.md: {readme} lines, and it must stay under {README_LINES}"


def shape() -> Iterator[str]:
    """Folders of the package can be read at a glance, names carry no hierarchy, and each folder says what it is for."""
    package = ROOT / "src/noetl"
    modules: dict[Path, list[str]] = defaultdict(list)
    folders: dict[Path, set[str]] = defaultdict(set)
    for path in tracked("src/noetl/*.py"):
        modules[path.parent].append(path.stem)
        for folder in (parent for parent in path.parents if parent != package and package in parent.parents):
            folders[folder.parent].add(folder.name)
    for folder, names in sorted(modules.items()):
        place = folder.relative_to(ROOT)
        own = [name for name in names if not name.startswith("__")]
        if len(own) > FOLDER_MODULES:
            yield f"{place}: {len(own)} modules, more than {FOLDER_MODULES}"
        for prefix, count in Counter(name.partition("_")[0] for name in own).items():
            if count >= FAMILY:
                yield f"{place}: {count} modules named {prefix}*, which should be a folder"
        start = folder / "__init__.py"
        if (
            folder != package
            and "migrations" not in folder.parts
            and (not start.is_file() or not ast.get_docstring(ast.parse(start.read_text())))
        ):
            yield f"{place}: its __init__ does not say what goes in, what comes out and what it never does"
    for folder, names in sorted(folders.items()):
        if len(names) > SUB_FOLDERS:
            yield f"{folder.relative_to(ROOT)}: {len(names)} folders, more than {SUB_FOLDERS}"


def manners() -> Iterator[str]:
    """No left-over marks, no names that say nothing, no sleeping in tests."""
    for path in tracked("*.py", "*.sql", "*.md", "Makefile", "*.toml"):
        name = str(path.relative_to(ROOT))
        text = path.read_text()
        if BANNED_NAMES.search(name):
            yield f"{name}: a name that says nothing"
        for number, line in enumerate(text.splitlines(), 1):
            if LEFT_OVER.search(line) and name != "tools/check_repository.py":
                yield f"{name}:{number}: a left-over mark"
        if name.startswith("tests/") and path.suffix == ".py":
            yield from (f"{name}:{line}: sleeps instead of waiting for a signal" for line in _sleeps(text))


def _sleeps(text: str) -> Iterator[int]:
    """Find where a test itself sleeps; code that it hands to others as text may."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "sleep":
            continue
        module = node.func.value
        is_pause = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        if isinstance(module, ast.Name) and module.id in ("time", "asyncio") and not is_pause:
            yield node.lineno


def servers() -> Iterator[str]:
    """What needs a server stands in tests/integration, not in tests/unit."""
    for path in tracked("tests/unit/*.py"):
        if reasons := server_reasons(path):
            yield f"{path.relative_to(ROOT)}: needs a server ({', '.join(sorted(reasons))}); move it to tests/integration"


def server_reasons(path: Path) -> set[str]:
    """Name what starts a server in a test file: a marker, a module, or fixtures that come to one through others."""
    text = path.read_text()
    reasons = set(STARTS_SERVER.findall(text))
    known = known_fixtures(path)
    uses = [known[name][1] for name, (at, _, is_auto) in known.items() if at == path or is_auto]
    uses += [
        _asked_for(node) for node in ast.walk(ast.parse(text)) if _is_function(node) and node.name.startswith("test")
    ]
    uses.append(set(re.findall(r'usefixtures\("(\w+)"', text)))
    return reasons | (reached(set().union(*uses), known) & SERVER_FIXTURES)


def known_fixtures(path: Path) -> dict[str, tuple[Path, set[str], bool]]:
    """Find the fixtures that a file sees: where each is defined, what it asks for, and whether it is always used."""
    folders = [folder for folder in reversed(path.parents) if folder.is_relative_to(ROOT / "tests")]
    plugins = [*tracked("src/noetl/testing/servers/*.py"), *tracked("src/noetl/testing/engines/*.py")]
    found: dict[str, tuple[Path, set[str], bool]] = {}
    for place in [*plugins, *(folder / "conftest.py" for folder in folders), path]:
        found |= _defined(place) if place.is_file() else {}
    return found


@cache
def _defined(path: Path) -> dict[str, tuple[Path, set[str], bool]]:
    """Find the fixtures that a file defines, or takes from a conftest elsewhere."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".conftest"):
            elsewhere = _defined(ROOT / f"{str(node.module).replace('.', '/')}.py")
            found |= {one.name: elsewhere[one.name] for one in node.names if one.name in elsewhere}
        marks = [ast.unparse(mark) for mark in node.decorator_list] if _is_function(node) else []
        if fixture := next((mark for mark in marks if mark.startswith("pytest.fixture")), ""):
            found[node.name] = (path, _asked_for(node) - {node.name}, "autouse=True" in fixture)
    return found


def reached(names: set[str], known: dict[str, tuple[Path, set[str], bool]]) -> set[str]:
    """Follow fixtures to all that they ask for."""
    seen: set[str] = set()
    while names := names - seen:
        seen |= names
        names = set().union(*(known[name][1] for name in names if name in known))
    return seen


def _is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _asked_for(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the fixtures that a test or a fixture asks for, as parameters or by name."""
    given = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
    return given | set(re.findall(r"getfixturevalue\('(\w+)'", ast.unparse(node)))


def leases() -> Iterator[str]:
    """Only `noetl.kernel.leases` compares the times and tokens of leases in SQL; few others read the times."""
    for path in tracked("src/noetl/*.py"):
        name = str(path.relative_to(ROOT))
        if name.startswith("src/noetl/kernel/leases/"):
            continue
        reads = False
        for line, text in _texts(ast.parse(path.read_text())):
            if LEASE_RULES.search(text):
                yield f"{name}:{line}: SQL of leases, which belongs into src/noetl/kernel/leases"
            elif LEASE_TIMES.search(text):
                reads = True
                if name not in READS_LEASE_TIMES:
                    yield f"{name}:{line}: reads the time of a lease, and READS_LEASE_TIMES does not say why"
        if name in READS_LEASE_TIMES and not reads:
            yield f"tools/check_repository.py: READS_LEASE_TIMES names {name}, which reads none"


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Find texts of more than a name in code; docstrings stand by themselves and are none."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in said and not re.fullmatch(r"[\w.]*", node.value):
            yield node.lineno, node.value


def locks() -> Iterator[str]:
    """The locks name versions and hashes, no hosts; all have the versions that the tests run with."""
    tested = _locked("requirements-dev.lock")
    for name in ("requirements.lock", "requirements-build.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text()
        if re.search(r"https?://|--(extra-)?index-url|--find-links", text):
            yield f"{name}: names a host"
        if text.count("--hash=sha256:") == 0:
            yield f"{name}: has no hashes"
        for package, version in _locked(name).items():
            if tested.get(package) != version:
                yield f"{name}: {package} {version} is not what the tests run with; run `make lock`"


def _locked(name: str) -> dict[str, str]:
    """Read which version of each package a lock names."""
    return dict(re.findall(r"^([a-z][\w.-]*)(?:\[[^]]*\])?==(\S+)", (ROOT / name).read_text(), re.MULTILINE))


def generated() -> Iterator[str]:
    """Generated files are what their generators make now."""
    from generate import generated_files

    for path, text in generated_files().items():
        if not path.is_file() or path.read_text() != text:
            yield f"{path.relative_to(ROOT)}: out of date; run `make verify` and commit what it wrote"


def schema() -> Iterator[str]:
    """The files of the schema are listed, carried by revisions, and pass over no event type."""
    from check_schema import problems

    yield from (f"src/noetl/schema/{problem}" for problem in problems())


def attacks() -> Iterator[str]:
    """The page on reliability names every attack, and nothing that is not there."""
    page = "docs/reliability.md"
    named = set(re.findall(r"`(tests/[\w/.]+)`", (ROOT / page).read_text()))
    played = {str(path.relative_to(ROOT)) for path in tracked("tests/attacks/test_*.py")}
    yield from (f"{page}: names no {name}" for name in sorted(played - named))
    yield from (f"{page}: names {name}, which is not there" for name in sorted(named) if not (ROOT / name).exists())


def main() -> int:
    """Run all checks."""
    checks = (invariants, fault_points, sizes, shape, manners, servers, leases, locks, generated, schema, attacks)
    problems = [problem for check in checks for problem in check()]
    for problem in problems:
        sys.stderr.write(problem + "\n")
    sys.stdout.write(f"repository: {len(problems)} problems\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
