"""The module ``ssl`` of the sandbox, whose Python has none: the host encrypts.

A client that believes to encrypt its connection marks it with
:data:`gristmill._connection.TLS_MARK`, and the host then sends the request by ``https``. The host
always checks certificates, with its own roots: ``verify=False`` and other roots have no effect, and
a client's own certificate is refused. Only a component uses this module.
"""

from __future__ import annotations

import enum
import errno
from collections import namedtuple
from types import ModuleType
from typing import Any

from ._connection import TLS_MARK


class SSLError(OSError):
    """An error of TLS."""

    library = reason = "gristmill"


class SSLZeroReturnError(SSLError):
    pass


class SSLWantReadError(SSLError):
    pass


class SSLWantWriteError(SSLError):
    pass


class SSLSyscallError(SSLError):
    pass


class SSLEOFError(SSLError):
    pass


class SSLCertVerificationError(SSLError, ValueError):
    verify_code = 0
    verify_message = ""


class TLSVersion(enum.IntEnum):
    MINIMUM_SUPPORTED = -2
    SSLv3 = 768
    TLSv1 = 769
    TLSv1_1 = 770
    TLSv1_2 = 771
    TLSv1_3 = 772
    MAXIMUM_SUPPORTED = -1


class VerifyMode(enum.IntEnum):
    CERT_NONE = 0
    CERT_OPTIONAL = 1
    CERT_REQUIRED = 2


class Purpose(enum.Enum):
    SERVER_AUTH = "1.3.6.1.5.5.7.3.1"
    CLIENT_AUTH = "1.3.6.1.5.5.7.3.2"


class MemoryBIO:
    """Bytes between a protocol and its transport."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ended = False

    @property
    def pending(self) -> int:
        return len(self._bytes)

    @property
    def eof(self) -> bool:
        return self._ended and not self._bytes

    def read(self, most: int = -1) -> bytes:
        count = len(self._bytes) if most < 0 else most
        data = bytes(self._bytes[:count])
        del self._bytes[:count]
        return data

    def write(self, data: Any) -> int:
        self._bytes += data
        return memoryview(data).nbytes

    def write_eof(self) -> None:
        self._ended = True


class _Facts:
    """The answers to questions about a connection that the host encrypts."""

    context: SSLContext
    server_side = False
    server_hostname: Any = None
    session = None
    session_reused = False

    def version(self) -> str:
        return "TLSv1.3"

    def cipher(self) -> tuple[str, str, int]:
        return ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)

    def selected_alpn_protocol(self) -> str:
        return "http/1.1"

    def selected_npn_protocol(self) -> None:
        return None

    def compression(self) -> None:
        return None

    def getpeercert(self, binary_form: bool = False) -> Any:
        if binary_form:
            raise SSLError(errno.EOPNOTSUPP, "a component does not see certificates: its host does")
        # The host sends nothing unless the certificate is for this name.
        return {"subjectAltName": (("DNS", self.server_hostname or ""),)}

    def get_channel_binding(self, kind: str = "tls-unique") -> None:
        return None


class SSLObject(_Facts):
    """Passes bytes on as they are, after the mark."""

    def __init__(self, context: SSLContext, incoming: MemoryBIO, outgoing: MemoryBIO) -> None:
        self.context = context
        self._incoming, self._outgoing = incoming, outgoing

    def do_handshake(self) -> None:
        self._outgoing.write(TLS_MARK)

    def read(self, most: int = 1024, buffer: Any = None) -> Any:
        if not self._incoming.pending:
            if self._incoming.eof:
                if buffer is None:
                    return b""
                return 0
            raise SSLWantReadError(2, "the operation did not complete (read)")
        data = self._incoming.read(most)
        if buffer is None:
            return data
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        return self._outgoing.write(data)

    def pending(self) -> int:
        return self._incoming.pending

    def unwrap(self) -> None:
        pass


class SSLSocket(_Facts):
    """A socket that began with the mark."""

    def __init__(self, context: SSLContext, inner: Any, server_hostname: Any) -> None:
        self.context = context
        self._inner = inner
        self._sslobj = self
        self.server_hostname = server_hostname
        inner.sendall(TLS_MARK)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> SSLSocket:
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.close()

    def do_handshake(self, block: bool = False) -> None:
        pass

    def read(self, most: int = 1024, buffer: Any = None) -> Any:
        return self._inner.recv(most) if buffer is None else self._inner.recv_into(buffer, most)

    def write(self, data: Any) -> int:
        return int(self._inner.send(data))

    def pending(self) -> int:
        return 0

    def unwrap(self) -> Any:
        return self._inner


class SSLContext:
    """Settings, which are kept and have no effect."""

    sslsocket_class = SSLSocket
    sslobject_class = SSLObject

    def __init__(self, protocol: int = 16) -> None:
        self.protocol = protocol
        self.check_hostname = True
        self.verify_mode = VerifyMode.CERT_REQUIRED
        self.minimum_version = TLSVersion.TLSv1_2
        self.maximum_version = TLSVersion.MAXIMUM_SUPPORTED
        self.options = self.verify_flags = 0
        self.hostname_checks_common_name = False
        self.post_handshake_auth = False
        self.keylog_filename = None
        self.sni_callback = None

    def wrap_socket(
        self,
        sock: Any,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: Any = None,
        session: Any = None,
    ) -> SSLSocket:
        return SSLSocket(self, sock, server_hostname)

    def wrap_bio(
        self,
        incoming: MemoryBIO,
        outgoing: MemoryBIO,
        server_side: bool = False,
        server_hostname: Any = None,
        session: Any = None,
    ) -> SSLObject:
        return SSLObject(self, incoming, outgoing)

    def load_cert_chain(self, *args: object, **kwargs: object) -> None:
        raise SSLError(
            errno.EOPNOTSUPP, "a component cannot show a certificate of its own: its host encrypts"
        )

    def _has_no_effect(self, *args: object, **kwargs: object) -> None:
        pass

    load_verify_locations = load_default_certs = set_default_verify_paths = _has_no_effect
    set_ciphers = set_alpn_protocols = set_npn_protocols = set_ecdh_curve = _has_no_effect
    load_dh_params = set_servername_callback = _has_no_effect

    def get_ca_certs(self, binary_form: bool = False) -> list[Any]:
        return []

    def get_ciphers(self) -> list[Any]:
        return []

    def cert_store_stats(self) -> dict[str, int]:
        return {"x509": 0, "crl": 0, "x509_ca": 0}

    def session_stats(self) -> dict[str, int]:
        return {}


def _create_default_context(*args: object, **kwargs: object) -> SSLContext:
    return SSLContext()


_Paths = namedtuple(
    "_Paths",
    "cafile capath openssl_cafile_env openssl_cafile openssl_capath_env openssl_capath",
)


class _Module(ModuleType):
    def __getattr__(self, name: str) -> int:
        """Constants, whose values have no effect."""
        prefixes = ("OP_", "VERIFY_", "PROTOCOL_", "ALERT_DESCRIPTION_", "SSL_ERROR_")
        if name.startswith(prefixes):
            return 0
        if name.startswith("HAS_"):
            return name not in ("HAS_NPN", "HAS_SSLv2", "HAS_SSLv3", "HAS_TLSv1", "HAS_TLSv1_1")
        raise AttributeError(f"module 'ssl' of a component has no attribute {name!r}")


def module() -> ModuleType:
    """The module ``ssl``."""
    ssl = _Module("ssl", __doc__)
    for value in (
        SSLError,
        SSLZeroReturnError,
        SSLWantReadError,
        SSLWantWriteError,
        SSLSyscallError,
        SSLEOFError,
        SSLCertVerificationError,
        TLSVersion,
        VerifyMode,
        Purpose,
        MemoryBIO,
        SSLObject,
        SSLSocket,
        SSLContext,
    ):
        setattr(ssl, value.__name__, value)
    for mode in VerifyMode:
        setattr(ssl, mode.name, mode)
    more: dict[str, Any] = {
        "CertificateError": SSLCertVerificationError,
        "Options": int,
        "VerifyFlags": int,
        "AlertDescription": int,
        "create_default_context": _create_default_context,
        "_create_default_https_context": _create_default_context,
        "_create_stdlib_context": _create_default_context,
        "_create_unverified_context": _create_default_context,
        "get_default_verify_paths": lambda: _Paths(None, None, "", "", "", ""),
        "OPENSSL_VERSION": "OpenSSL 3.5.0 (the TLS of the host)",
        "OPENSSL_VERSION_INFO": (3, 5, 0, 0, 0),
        "OPENSSL_VERSION_NUMBER": 0x30500000,
        "PROTOCOL_TLS": 2,
        "PROTOCOL_SSLv23": 2,
        "PROTOCOL_TLS_CLIENT": 16,
        "PROTOCOL_TLS_SERVER": 17,
        "socket_error": OSError,
    }
    for name, constant in more.items():
        setattr(ssl, name, constant)
    return ssl
