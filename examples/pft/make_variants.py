"""Writes `pft_s3_frame_commit.yaml` from `pft_s3.yaml`: `python -m examples.pft.make_variants`.

The two differ in their names and in `commit: frame`: the rows of a frame are saved in one transaction, not in one each.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
ROW_COMMIT = FOLDER / "pft_s3.yaml"
FRAME_COMMIT = FOLDER / "pft_s3_frame_commit.yaml"

_PROCESS = "          process: row\n"


def frame_commit(text: str) -> str:
    """Return the playbook with one commit per frame in each of its loops."""
    named = text.replace("pft_s3\n", "pft_s3_frame_commit\n")
    return named.replace(_PROCESS, f"{_PROCESS}          commit: frame\n")


if __name__ == "__main__":
    FRAME_COMMIT.write_text(frame_commit(ROW_COMMIT.read_text()))
