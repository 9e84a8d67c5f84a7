"""`noetl spark`: what Spark needs besides itself. Starts none, except to make the class-data archive."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.group()
def spark() -> None:
    """Prepare what Spark runs on: packed environments and a quick start."""


@spark.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--with", "more", multiple=True, metavar="NAME", help="Pack this installed distribution too.")
@click.option(
    "--for",
    "dags",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="DAG",
    help="Pack what the jobs of this DAG's file declare under config.requirements, too.",
)
@click.option("--without", multiple=True, metavar="NAME", help="Leave this distribution out.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def pack(file: Path, more: tuple[str, ...], dags: tuple[Path, ...], without: tuple[str, ...], as_json: bool) -> None:
    """Pack NoETL and its wheels into FILE (.tar.gz) for the executors of a cluster.

    Executors need the same minor version of Python and the same kind of machine. Name FILE in `spark.pack`, as a path
    that the drivers see.

    \b
    Examples:
      noetl spark pack noetl-environment.tar.gz
      noetl spark pack environment.tar.gz --with scikit-learn
      noetl spark pack environment.tar.gz --for shop/dag.yaml
      NOETL_SPARK__PACK=environment.tar.gz NOETL_SPARK__MASTER=spark://spark:7077 noetl worker
    """
    from noetl.spark.pack import pack as write
    from noetl.spark.pack import python_version

    names = write(file, (*more, *_declared(dags)), without)
    size = file.stat().st_size
    if as_json:
        facts = {"file": str(file), "bytes": size, "python": python_version(), "distributions": names}
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(f"{file}: {len(names)} distributions, {size / 1e6:.0f} MB, for Python {python_version()}")


def _declared(dags: tuple[Path, ...]) -> list[str]:
    from noetl.language.dag.requirements import declared
    from noetl.pipelines.catalog.dags.bundles import read_bundle

    bundles = map(read_bundle, dags)
    return [one.name for bundle in bundles for job in bundle.dag.jobs for one in declared(job.config, bundle.files.get)]


@spark.command()
def prepare() -> None:
    """Make the archive of Spark's classes now, so that the first session starts as quickly as later ones.

    Without it the archive is made in the background after the first use of Spark.
    """
    from noetl.runtime.config import load_settings
    from noetl.spark.session.class_archive import make

    click.echo(f"{make(load_settings().spark.cache)}")
