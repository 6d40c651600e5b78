"""`S3Blobs`: blobs in a bucket of Amazon S3, or of a store with the same interface."""

from __future__ import annotations

import time
from typing import Any

from switchgear.app.payloads.blobs import BlobStore
from switchgear.errors import ConfigError

__all__ = ["S3Blobs"]


class S3Blobs(BlobStore):
    """Blobs as objects of a bucket.

    `options` are those of boto3's client, such as `endpoint_url`; credentials are found as boto3 finds them.
    """

    def __init__(self, bucket: str, prefix: str = "switchgear/", **options: Any) -> None:
        try:
            import boto3
            from botocore.exceptions import ClientError
        except ImportError:
            raise ConfigError("S3Blobs needs a package: pip install 'switchgear[s3]'") from None
        self.bucket = bucket
        self.prefix = prefix
        self._client = boto3.client("s3", **options)
        self._client_error: type[Exception] = ClientError

    def __repr__(self) -> str:
        return f"S3Blobs({self.bucket!r}, {self.prefix!r})"

    def put(self, name: str, data: bytes) -> None:
        self._client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=data)

    def get(self, name: str) -> bytes:
        try:
            answer = self._client.get_object(Bucket=self.bucket, Key=self.prefix + name)
        except self._client_error as error:
            if getattr(error, "response", {}).get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                raise KeyError(name) from None
            raise
        data: bytes = answer["Body"].read()
        return data

    def delete_older(self, seconds: float) -> int:
        limit = time.time() - seconds
        deleted = 0
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix):
            old = [entry["Key"] for entry in page.get("Contents", ()) if entry["LastModified"].timestamp() < limit]
            if old:
                self._client.delete_objects(Bucket=self.bucket, Delete={"Objects": [{"Key": key} for key in old]})
                deleted += len(old)
        return deleted
