"""``runpod.serverless.utils.rp_upload``: files to object storage with S3's interface.

The credentials are those of the call, such as a job's ``s3Config``, or else of the environment:
``BUCKET_ENDPOINT_URL``, ``BUCKET_ACCESS_KEY_ID`` and ``BUCKET_SECRET_ACCESS_KEY``. The endpoint must
allow requests to the storage's host. Requests are signed here (AWS Signature Version 4), so
``boto3`` is not needed. A file of more than 8 MiB is uploaded in parts, since the host sends at most
16 MiB in one request.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import mimetypes
import os
import re
import time
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPSConnection
from typing import IO, Any
from urllib.parse import quote, urlsplit

PART_BYTES = 8 << 20
URL_SECONDS = 604800
"""How long the URLs that are returned are valid: a week."""


class _Bucket:
    def __init__(self, credentials: Mapping[str, Any] | None, name: str | None) -> None:
        found = {
            "endpointUrl": os.environ.get("BUCKET_ENDPOINT_URL"),
            "accessId": os.environ.get("BUCKET_ACCESS_KEY_ID"),
            "accessSecret": os.environ.get("BUCKET_SECRET_ACCESS_KEY"),
        }
        found.update({key: value for key, value in (credentials or {}).items() if value})
        lacking = [key for key in ("endpointUrl", "accessId", "accessSecret") if not found.get(key)]
        if lacking:
            raise ValueError(
                f"no object storage: {', '.join(lacking)} is missing; pass the job's s3Config, or "
                "set BUCKET_ENDPOINT_URL, BUCKET_ACCESS_KEY_ID and BUCKET_SECRET_ACCESS_KEY"
            )
        self._url = urlsplit(str(found["endpointUrl"]).rstrip("/"))
        self._id, self._secret = str(found["accessId"]), str(found["accessSecret"])
        self.name = name or time.strftime("%m-%y")
        region = re.search(r"\.s3[.-]([a-z0-9-]+)\.|^s3[.-]([a-z0-9-]+)\.", self._url.netloc)
        space = re.search(r"([a-z0-9]+)\.digitaloceanspaces\.com", self._url.netloc)
        match = space or region
        self._region = next(filter(None, match.groups()), "us-east-1") if match else "us-east-1"

    def _path(self, key: str) -> str:
        return quote(f"{self._url.path}/{self.name}/{key}", safe="/-_.~")

    def _signature(self, now: str, canonical: str) -> str:
        scope = f"{now[:8]}/{self._region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"
        key = f"AWS4{self._secret}".encode()
        for part in (now[:8], self._region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.digest(key, text.encode(), "sha256").hex()

    def send(
        self, method: str, key: str, query: Mapping[str, str], body: bytes, kind: str = ""
    ) -> tuple[Mapping[str, str], bytes]:
        """One signed request. Raises ``OSError`` with the storage's answer if it refuses."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": self._url.netloc, "x-amz-content-sha256": digest, "x-amz-date": now}
        if kind:
            headers["content-type"] = kind
        names = ";".join(sorted(headers))
        listed = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        asked = _query(query)
        canonical = f"{method}\n{self._path(key)}\n{asked}\n{listed}\n{names}\n{digest}"
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._id}/{now[:8]}/{self._region}/s3/aws4_request, "
            f"SignedHeaders={names}, Signature={self._signature(now, canonical)}"
        )
        kinds = {"https": HTTPSConnection, "http": HTTPConnection}
        if self._url.scheme not in kinds:
            raise ValueError(f"endpointUrl must be an http or https URL, not {self._url.geturl()}")
        connection = kinds[self._url.scheme](self._url.netloc, timeout=60)
        try:
            target = self._path(key) + (f"?{asked}" if asked else "")
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status >= 300:
            text = answer[:300].decode(errors="replace")
            raise OSError(f"the object storage answered {response.status} to {method}: {text}")
        return {name.lower(): value for name, value in response.getheaders()}, answer

    def url(self, key: str) -> str:
        """A URL with which anybody can read the object for a week."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        query = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self._id}/{now[:8]}/{self._region}/s3/aws4_request",
            "X-Amz-Date": now,
            "X-Amz-Expires": str(URL_SECONDS),
            "X-Amz-SignedHeaders": "host",
        }
        asked = _query(query)
        canonical = (
            f"GET\n{self._path(key)}\n{asked}\nhost:{self._url.netloc}\n\nhost\nUNSIGNED-PAYLOAD"
        )
        signature = self._signature(now, canonical)
        base = f"{self._url.scheme}://{self._url.netloc}{self._path(key)}"
        return f"{base}?{asked}&X-Amz-Signature={signature}"

    def put(self, key: str, file: IO[bytes], kind: str) -> None:
        """Uploads a file."""
        first = file.read(PART_BYTES)
        if len(first) < PART_BYTES:
            self.send("PUT", key, {}, first, kind)
            return
        _, answer = self.send("POST", key, {"uploads": ""}, b"", kind)
        upload = _element(answer, "UploadId")
        try:
            parts: list[str] = []
            part = first
            while part:
                number = str(len(parts) + 1)
                asked = {"partNumber": number, "uploadId": upload}
                headers, _ = self.send("PUT", key, asked, part)
                tag = headers.get("etag", "")
                parts.append(f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
                part = file.read(PART_BYTES)
            listed = "".join(parts)
            whole = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
            _, answer = self.send("POST", key, {"uploadId": upload}, whole, "application/xml")
            _check_completed(answer)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error says more
                self.send("DELETE", key, {"uploadId": upload}, b"")  # parts would cost money
            raise


def _query(query: Mapping[str, str]) -> str:
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def _check_completed(document: bytes) -> None:
    """Raises ``OSError`` if the storage has not joined the parts of an upload: S3 sends the status
    200 before it joins them, and the body says whether it could."""
    if not document:
        return  # some storages confirm the upload without a body
    try:
        # S3 sends white space while it works, and XML begins with no white space.
        root = ElementTree.fromstring(document.strip())
    except ElementTree.ParseError:
        text = document[:300].decode(errors="replace")
        raise OSError(f"the object storage did not confirm the upload: {text!r}") from None
    if root.tag.rpartition("}")[2] == "Error":
        found = {part.tag.rpartition("}")[2]: part.text for part in root}
        reason = f"{found.get('Code')}: {found.get('Message')}"
        raise OSError(f"the object storage did not complete the upload: {reason}")


def _element(document: bytes, name: str) -> str:
    for element in ElementTree.fromstring(document).iter():
        if element.tag.rpartition("}")[2] == name and element.text:
            return element.text
    raise OSError(f"the object storage's answer has no {name}")


def _key(prefix: str | None, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


def _kind(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def upload_file_to_bucket(
    file_name: str,
    file_location: str,
    bucket_creds: Mapping[str, Any] | None = None,
    bucket_name: str | None = None,
    prefix: str | None = None,
    extra_args: Mapping[str, Any] | None = None,
) -> str:
    """Uploads a file, and returns a URL with which anybody can read it for a week. Of ``extra_args``
    only ``ContentType`` has an effect."""
    bucket = _Bucket(bucket_creds, bucket_name)
    kind = str((extra_args or {}).get("ContentType") or _kind(file_name))
    with open(file_location, "rb") as file:
        bucket.put(_key(prefix, file_name), file, kind)
    return bucket.url(_key(prefix, file_name))


def upload_in_memory_object(
    file_name: str,
    file_data: bytes,
    bucket_creds: Mapping[str, Any] | None = None,
    bucket_name: str | None = None,
    prefix: str | None = None,
) -> str:
    """Uploads bytes, and returns a URL with which anybody can read them for a week."""
    bucket = _Bucket(bucket_creds, bucket_name)
    bucket.put(_key(prefix, file_name), io.BytesIO(file_data), _kind(file_name))
    return bucket.url(_key(prefix, file_name))


def upload_image(
    job_id: str,
    image_location: str,
    result_index: int = 0,
    results_list: list[Any] | None = None,
    bucket_name: str | None = None,
) -> str:
    """Uploads a file as ``JOB/RANDOM.SUFFIX``, and returns a URL as the other functions do."""
    name = f"{str(uuid.uuid4())[:8]}{os.path.splitext(image_location)[1]}"
    url = upload_file_to_bucket(name, image_location, bucket_name=bucket_name, prefix=job_id)
    if results_list is not None:
        results_list[result_index] = url
    return url


def files(job_id: str, file_list: Iterable[str]) -> list[str]:
    """Uploads files, one after the other."""
    return [upload_image(job_id, path) for path in file_list]


def bucket_upload(
    job_id: str, file_list: Iterable[str], bucket_creds: Mapping[str, Any]
) -> list[str]:
    """Uploads files to the bucket that the credentials name; their URLs need credentials."""
    bucket = _Bucket(bucket_creds, str(bucket_creds["bucketName"]))
    urls = []
    for path in file_list:
        with open(path, "rb") as file:
            bucket.put(f"{job_id}/{path}", file, _kind(path))
        urls.append(f"{bucket_creds['endpointUrl']}/{bucket.name}/{job_id}/{path}")
    return urls
