"""The settings as a tree of sections, named groups and leaves, for reading, describing and showing them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, Secret
from pydantic.fields import FieldInfo

from noetl.runtime.config.problems import Path
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.settings.types import Planned

Bound = Ge | Gt | Le | Planned


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single setting: its declaration, its bare type, its bounds, and whether it may be null, many or secret."""

    field: FieldInfo
    type: Any
    bounds: tuple[Bound, ...]
    nullable: bool
    many: bool
    secret: bool


@dataclass(frozen=True, slots=True)
class Named:
    """Sections of one kind under names the user chooses."""

    section: type[BaseModel]


Node = type[BaseModel] | Named | Leaf


def children(section: type[BaseModel]) -> dict[str, Node]:
    """Give what stands under a section, by key."""
    return {key: _node(field) for key, field in section.model_fields.items()}


def find(path: Path) -> Node:
    """Give the node at a path that is known to exist."""
    node: Node = Settings
    for key in path:
        node = node.section if isinstance(node, Named) else children(node)[key]  # type: ignore[arg-type]
    return node


def leaves(section: type[BaseModel] = Settings, above: Path = ()) -> Iterator[tuple[Path, Leaf]]:
    """Walk over every leaf; a name the user chooses stands as `<name>`."""
    for key, node in children(section).items():
        path = (*above, key)
        if isinstance(node, Leaf):
            yield path, node
        elif isinstance(node, Named):
            yield from leaves(node.section, (*path, "<name>"))
        else:
            yield from leaves(node, path)


def variable(path: Path) -> str:
    """Name the environment variable that sets the leaf at a path."""
    return SHORT.get(path) or "NOETL_" + "__".join(path).upper()


SHORT: dict[Path, str] = {
    ("runtime", "home"): "NOETL_HOME",
    ("runtime", "tenant_id"): "NOETL_TENANT_ID",
    ("runtime", "organization_id"): "NOETL_ORGANIZATION_ID",
    ("runtime", "node_id"): "NOETL_NODE_ID",
    ("runtime", "cluster_id"): "NOETL_CLUSTER_ID",
    ("runtime", "shard_id"): "NOETL_SHARD_ID",
    ("runtime", "metrics_port"): "NOETL_METRICS_PORT",
    ("runtime", "metrics_host"): "NOETL_METRICS_HOST",
    ("database", "url"): "NOETL_DATABASE_URL",
    ("database", "owner_url"): "NOETL_OWNER_DATABASE_URL",
}
"""Settings with a short variable name beside the regular one."""


def _node(field: FieldInfo) -> Node:
    bare, bounds, nullable = _unwrap(field.annotation, list(field.metadata))
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        return bare
    if get_origin(bare) is dict:
        return Named(get_args(bare)[1])
    many = get_origin(bare) is tuple
    if many:
        bare, bounds, _ = _unwrap(get_args(bare)[0], [])
    secret = isinstance(bare, type) and issubclass(bare, Secret)
    return Leaf(field, bare, tuple(bounds), nullable, many, secret)


def _unwrap(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Bound], bool]:
    nullable = type(None) in get_args(annotation)
    if nullable:
        annotation = next(one for one in get_args(annotation) if one is not type(None))
    if get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        metadata += more
    flat = [inner for one in metadata for inner in (one.metadata if isinstance(one, FieldInfo) else [one])]
    return annotation, [one for one in flat if isinstance(one, Bound)], nullable
