"""Secrets from AWS Secrets Manager."""

from __future__ import annotations

import base64
import re
from functools import partial
from typing import Any

from noetl.errors import ConfigError, Denied, InputError, NotFound, Unavailable
from noetl.kernel.outgoing.blocking_threads import waited
from noetl.services.credentials.providers.port import FetchOptions, client_library, fields_of, needed

_DENIED = (
    "AccessDenied",
    "UnrecognizedClient",
    "InvalidSignature",
    "ExpiredToken",
    "InvalidClientTokenId",
    "Decryption",
)
_HOSTS = re.compile(r"secretsmanager(?:-fips)?\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?")
"""Nothing else below Amazon's domain: machines and buckets of anybody have names there, some of them private addresses."""
_STAGES = ("AWSCURRENT", "AWSPREVIOUS", "AWSPENDING")


class AwsSecrets:
    """Reads as the credential (type s3 fits), or as the identity boto3 finds in the process's surroundings."""

    async def fetch(self, name: str, options: FetchOptions) -> dict[str, str]:
        """Return the fields of a secret by name or ARN; `version` is a version id or a stage such as AWSPREVIOUS."""
        client_library("boto3", "aws")
        return await waited(options.scope, partial(_read, name, options))


def _read(name: str, options: FetchOptions) -> dict[str, str]:
    failures = client_library("botocore.exceptions", "aws")
    version: dict[str, str] = {}
    if options.version is not None:
        version = {"VersionStage" if options.version in _STAGES else "VersionId": options.version}
    try:
        answer = _client(options).get_secret_value(SecretId=name, **version)
    except failures.ClientError as problem:
        raise _translated(name, str(problem.response.get("Error", {}).get("Code", ""))) from None
    except (failures.NoCredentialsError, failures.PartialCredentialsError):
        raise Denied(
            f"there is no AWS identity to read the secret {name!r} with",
            hint="name a credential of type s3 in the entry's auth, or give the process a role",
        ) from None
    except failures.NoRegionError:
        raise ConfigError(f"secret {name!r}: no AWS region is given", hint="set region in the keychain entry") from None
    except failures.BotoCoreError as problem:
        raise Unavailable(f"AWS does not answer for the secret {name!r}: {type(problem).__name__}") from None
    text = answer.get("SecretString")
    return fields_of(base64.b64encode(answer["SecretBinary"]).decode() if text is None else text)


def _client(options: FetchOptions) -> Any:
    boto3 = client_library("boto3", "aws")
    config = client_library("botocore.config", "aws").Config(
        connect_timeout=10, read_timeout=20, retries={"total_max_attempts": 3}
    )
    login: dict[str, Any] = {}
    identity = options.identity
    if identity is not None:
        endpoint = identity.get("secretsmanager_endpoint")
        if endpoint:
            options.reach.refuse_others(str(endpoint), _HOSTS, "the hosts of AWS Secrets Manager")
        login = {
            "aws_access_key_id": needed(identity, "access_key_id", "access_key", "aws_access_key_id", what="AWS"),
            "aws_secret_access_key": needed(
                identity, "secret_access_key", "secret_key", "aws_secret_access_key", what="AWS"
            ),
            "aws_session_token": identity.get("session_token") or identity.get("aws_session_token"),
            "endpoint_url": endpoint,
        }
    region = options.region or (identity or {}).get("region") or (identity or {}).get("region_name")
    # A session of its own: boto3's shared one must not be used from several threads.
    return boto3.session.Session().client("secretsmanager", region_name=region, config=config, **login)


def _translated(name: str, code: str) -> Exception:
    if code == "ResourceNotFoundException":
        return NotFound(f"AWS has no secret {name!r} in this region")
    if code.startswith(_DENIED):
        return Denied(f"AWS does not let this identity read the secret {name!r} ({code})")
    if code in {"InvalidParameterException", "InvalidRequestException", "ValidationException"}:
        return InputError(f"AWS refuses the request for the secret {name!r} ({code})")
    return Unavailable(f"AWS does not answer for the secret {name!r} ({code})")
