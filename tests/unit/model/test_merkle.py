"""The Merkle tree of RFC 9162 against the vectors of the reference implementations, and against its own definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.model.merkle import (
    NO_ROOT,
    MerkleFrontier,
    audit_path,
    leaf_hash,
    node_hash,
    root_from_path,
    root_of,
    subtrees,
)

# The inputs and roots that the Certificate Transparency implementations share.
DATA = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
PATHS = {
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
}


def by_definition(leaves: list[bytes]) -> bytes:
    """Return the tree hash as section 2.1.1 defines it."""
    if len(leaves) < 2:
        return leaves[0] if leaves else NO_ROOT
    middle = 1 << ((len(leaves) - 1).bit_length() - 1)
    return node_hash(by_definition(leaves[:middle]), by_definition(leaves[middle:]))


def path_of(index: int, leaves: list[bytes]) -> list[bytes]:
    """Return the hashes of a proof, each subtree by its definition."""
    return [
        root_of([by_definition(leaves[number << level : (number + 1) << level]) for level, number in part])
        for part in audit_path(index, len(leaves))
    ]


def test_roots_and_paths_are_those_of_the_reference_implementations() -> None:
    """INV-205."""
    tree, leaves = MerkleFrontier(), [leaf_hash(data) for data in DATA]
    assert tree.root().hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    for leaf, root in zip(leaves, ROOTS, strict=True):
        tree.add(leaf)
        assert tree.root().hex() == root
    for (index, size), path in PATHS.items():
        assert [one.hex() for one in path_of(index, leaves[:size])] == path


@given(st.integers(1, 70), st.data())
def test_a_growing_tree_and_its_proofs_agree_with_the_definition(size: int, data: st.DataObject) -> None:
    """INV-205."""
    leaves = [leaf_hash(number.to_bytes(4)) for number in range(size)]
    tree, complete = MerkleFrontier(), {}
    for leaf in leaves:
        complete |= dict(tree.add(leaf))
    assert tree.root() == by_definition(leaves)
    assert all(
        made == by_definition(leaves[number << level : (number + 1) << level])
        for (level, number), made in complete.items()
    )
    assert all(part in complete for part in subtrees(0, size) if part[0])
    index = data.draw(st.integers(0, size - 1))
    path = path_of(index, leaves)
    assert len(path) <= 64
    assert root_from_path(index, size, leaves[index], path) == tree.root()
    other = data.draw(st.integers(0, size - 1).filter(lambda one: size == 1 or one != index))
    if size > 1:
        assert root_from_path(other, size, leaves[index], path) != tree.root()
        assert root_from_path(index, size, leaves[other], path) != tree.root()
        assert root_from_path(index, size, leaves[index], path[:-1]) != tree.root()
    assert root_from_path(index, size, leaves[index], [*path, leaves[0]]) is None


def test_a_path_that_cannot_be_one_leads_nowhere() -> None:
    leaf = leaf_hash(b"")
    assert root_from_path(1, 1, leaf, []) is None
    assert root_from_path(0, 2, leaf, [b"short"]) is None
    assert root_from_path(0, 1 << 63, leaf, [leaf] * 65) is None
    with pytest.raises(ValueError, match="none at 3"):
        audit_path(3, 3)
