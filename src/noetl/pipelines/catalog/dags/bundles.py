"""The files of a DAG as one immutable bundle: a directory or stored bytes go in, the checked DAG with its digests comes out.

User code is read, never run. A bundle holds the YAML as `dag.yaml` and only files that jobs need.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from noetl.errors import InputError
from noetl.language.dag.model import Dag, Job, deciding_definition
from noetl.language.dag.parse import ParsedDag, parse, refusal
from noetl.language.dag.python_files import Files
from noetl.language.dag.requirements import requirement_problems
from noetl.language.grammar.problems import Problem
from noetl.model.canonical import canonical_json

BUNDLE_TYPE: Final = "application/vnd.noetl.dag+zip"
DAG_FILE: Final = "dag.yaml"
OPERATOR_GROUP: Final = "noetl.operators"
MAX_FILES: Final = 1000
MAX_BYTES: Final = 64 * 1024 * 1024
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o100644 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A DAG with all its files."""

    dag: Dag
    digest: str
    """SHA-256 of `data`."""
    code_digest: str
    """Digest of the Python files and declared dependencies alone; empty if there are none."""
    yaml_hash: str
    """Digest of the YAML's values, whatever its layout."""
    data: bytes
    """A zip that is the same for the same files."""
    files: dict[str, bytes]
    job_files: dict[str, tuple[str, ...]]
    """The files each job needs, the YAML not among them."""
    warnings: tuple[Problem, ...] = ()


def read_bundle(path: Path, *, operators: Collection[str] | None = None) -> Bundle:
    """Read a DAG's YAML and the files its jobs need from the directory it lies in; the DAG is checked.

    `operators` are those it may use besides NoETL's own: the installed ones unless told.
    """
    content = _content(path)
    beside = files_beside(path)
    known = installed_operators() if operators is None else operators
    parsed = parse(_text(content, path), file=str(path), files=beside, operators=known)
    files = {DAG_FILE: content}
    for name in sorted({name for names in parsed.job_files.values() for name in names}):
        found = beside(name)
        if name == DAG_FILE or found is None:
            raise InputError(
                f"{path}: the file {name} cannot be part of the bundle",
                hint=f"{DAG_FILE} is what the DAG itself is called there: rename the other file",
            )
        files[name] = found
    _bound(files)
    return replace(_bundle(parsed, files, _zipped(files)), warnings=tuple(_looked_at(parsed, beside)))


def open_bundle(data: bytes) -> Bundle:
    """Open a stored bundle; it is checked as if it came from a directory, but may use operators not installed here."""
    files = _unzipped(data)
    if DAG_FILE not in files:
        raise InputError(f"the bundle has no {DAG_FILE}", hint="make it with `noetl dag deploy`")
    parsed = parse(_text(files[DAG_FILE], Path(DAG_FILE)), file=DAG_FILE, files=files, operators=None)
    return _bundle(parsed, files, data)


def uploaded_bundle(data: bytes) -> Bundle:
    """Check uploaded files and pack them anew: the same files are the same version, however they were zipped."""
    try:
        given = open_bundle(data)
        with TemporaryDirectory(prefix="noetl-bundle-") as directory:
            unpack(data, Path(directory))
            # Operators need not be installed here: a worker runs them.
            return read_bundle(Path(directory, DAG_FILE), operators={job.operator for job in given.dag.jobs})
    except (OSError, zlib.error) as problem:
        # The system's own words would name a path of this server.
        told = problem.strerror if isinstance(problem, OSError) else "its data are damaged"
        raise InputError(f"the bundle cannot be opened: {told}", hint="zip plain files, dag.yaml at the root") from None


def unpack(data: bytes, directory: Path) -> None:
    """Write the files of a bundle below a directory, which is made; nothing is ever written outside it."""
    for name, content in _unzipped(data).items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def config_with_sql(config: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return what an operator is told with the SQL of its `file` put in as `sql`; other configs stay as they are."""
    name = config.get("file")
    content = _unzipped(data).get(name) if isinstance(name, str) and "sql" not in config else None
    return dict(config) if content is None else {**config, "sql": content.decode()}


def job_hash(bundle: Bundle, job: Job | str) -> str:
    """Digest all that decides a job's rows: its definition, the files it needs and its declared dependencies."""
    found = bundle.dag.job(job) if isinstance(job, str) else job
    files = {name: _sha256(bundle.files[name]) for name in bundle.job_files[found.name]}
    return _sha256(canonical_json({"definition": deciding_definition(found), "files": files}))


def installed_operators() -> frozenset[str]:
    """Return the operators that packages bring along; none of them is loaded."""
    return frozenset(point.name for point in entry_points(group=OPERATOR_GROUP))


def files_beside(path: Path) -> Files:
    """Return a reader of files below the directory of a DAG; what lies outside is not seen, too much is refused."""
    return _Directory(path.parent.resolve()).content


class _Directory:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._read: dict[str, bytes | None] = {}
        self._bytes = 0

    def content(self, name: str) -> bytes | None:
        if name not in self._read:
            found = self._read[name] = self._below(name)
            self._bytes += len(found or b"")
            if self._bytes > MAX_BYTES:
                raise _too_large("the files of the DAG")
        return self._read[name]

    def _below(self, name: str) -> bytes | None:
        try:
            found = (self._root / name).resolve() if _is_safe(name) else None
            if found is None or not found.is_relative_to(self._root) or not found.is_file():
                return None
            if found.stat().st_size > MAX_BYTES:
                raise _too_large(name)
            return found.read_bytes()
        except (OSError, ValueError):
            return None


def _looked_at(parsed: ParsedDag, beside: Files) -> list[Problem]:
    """Return what is worth knowing about a DAG on this machine; raises if a job declares what no package is."""
    packages = requirement_problems(parsed, beside)
    if any(problem.severity == "error" for problem in packages):
        raise refusal([*parsed.warnings, *packages])
    return [*parsed.warnings, *packages]


def _bundle(parsed: ParsedDag, files: dict[str, bytes], data: bytes) -> Bundle:
    return Bundle(
        dag=parsed.dag,
        digest=_sha256(data),
        code_digest=_code_digest(parsed.dag, files),
        yaml_hash=parsed.digest,
        data=data,
        files=files,
        job_files=parsed.job_files,
        warnings=tuple(parsed.warnings),
    )


def _code_digest(dag: Dag, files: Mapping[str, bytes]) -> str:
    declared = {job.name: found for job in dag.jobs if (found := job.config.get("requirements"))}
    named = {found for found in declared.values() if isinstance(found, str)}
    packages = sorted({one for found in declared.values() if isinstance(found, list) for one in found})
    code = {name: _sha256(content) for name, content in files.items() if name.endswith(".py") or name in named}
    return _sha256(canonical_json([code, packages])) if code or packages else ""


def _zipped(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3
            entry.external_attr = _MODE
            archive.writestr(entry, files[name])
    return target.getvalue()


def _unzipped(data: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_FILES or sum(entry.file_size for entry in entries) > MAX_BYTES:
                raise _too_large("the bundle")
            for entry in entries:
                if not _is_safe(entry.filename):
                    raise InputError(f"the bundle names {entry.filename!r}, which is no file below a directory")
            return {entry.filename: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise InputError(f"the bundle cannot be opened: {error}", hint="make it with `noetl dag deploy`") from None


def _is_safe(name: str) -> bool:
    parts = PurePosixPath(name).parts
    plain = bool(parts) and not any(part in ("..", "/", "//") for part in parts) and "\\" not in name
    return plain and ":" not in name and "\0" not in name and str(PurePosixPath(name)) == name


def _bound(files: Mapping[str, bytes]) -> None:
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
        raise _too_large("the files of the DAG")


def _too_large(what: str) -> InputError:
    return InputError(
        f"{what}: a DAG has at most {MAX_FILES} files and {MAX_BYTES // 1024 // 1024} MiB",
        hint="keep data in datasets, and large packages in config.requirements",
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", hint="name a DAG that exists") from None


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: byte {error.start} cannot be decoded") from None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
