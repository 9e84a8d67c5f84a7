"""The settings of signed heads: who signs them, how often, and where they are published."""

from __future__ import annotations

from pydantic import Field

from noetl.runtime.settings.types import Amount, Count, HttpUrl, Location, Name, SecretText, Section, Text


class HeadBucket(Section):
    """A bucket of S3 with object lock, where heads outlive whoever administers the database."""

    bucket: Text | None = Field(default=None, description="Name of the bucket; null publishes to the file alone.")
    prefix: Text = Field(default="heads", description="What the keys of heads begin with.")
    endpoint: HttpUrl | None = Field(default=None, description="Address of the object store; null is that of AWS.")
    region: Name = Field(default="us-east-1", description="Region of the bucket.")
    access_key: Text | None = Field(
        default=None, description="Who publishes; it needs to put objects, and nothing else."
    )
    secret_key: SecretText | None = Field(default=None, description="The secret of that key.")
    lock_days: Count = Field(
        default=3650,
        description="Days for which a head is locked in compliance mode: nobody can change or remove the version that was put; "
        "newer ones count for nothing.",
    )


class Heads(Section):
    """Signed heads of the ledger's Merkle trees, and where they are published."""

    in_server: bool = Field(
        default=True,
        description="Whether servers and schedulers sign heads; false leaves it to `noetl notary`, which may have the key alone.",
    )
    every_seconds: Amount = Field(
        default=60, description="Seconds between two rounds; each signs a head of every shard that grew."
    )
    path: Location | None = Field(
        default=None, description="Directory of the files of heads; null is `heads` under `runtime.home`."
    )
    s3: HeadBucket = HeadBucket()
