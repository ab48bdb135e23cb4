"""``runpod.serverless.utils``."""

from .._volume_cache import VolumeCache
from . import rp_cleanup, rp_cuda, rp_debugger, rp_download, rp_upload, rp_validator
from .rp_download import download_files_from_urls
from .rp_upload import upload_file_to_bucket, upload_in_memory_object
from .rp_validator import validate

__all__ = [
    "VolumeCache",
    "download_files_from_urls",
    "rp_cleanup",
    "rp_cuda",
    "rp_debugger",
    "rp_download",
    "rp_upload",
    "rp_validator",
    "upload_file_to_bucket",
    "upload_in_memory_object",
    "validate",
]
