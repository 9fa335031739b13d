"""What went wrong in TLS, in words that say what to do."""

from __future__ import annotations

import ssl

_MEANINGS = {
    "CERTIFICATE_VERIFY_FAILED": "the peer's certificate is not accepted",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate, which ssl.client.auth=required demands",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that ssl.enabled.protocols has",
    "NO_SHARED_CIPHER": "both sides have no cipher suite in common (ssl.cipher.suites)",
    "WRONG_VERSION_NUMBER": "what it sent is no TLS; it may speak PLAINTEXT",
    "HTTP_REQUEST": "it sent an HTTP request",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer speaks none of the versions in ssl.enabled.protocols",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer's trust store has no authority of this side's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer does not accept this side's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer does not accept this side's certificate, or its name",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this side's certificate has expired: replace it",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer demands a certificate: set ssl.keystore.location",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "its bytes cannot be decrypted",
    # What OpenSSL from 3.2 on says of a KeyUpdate, also one of the peer's own keys alone, where the system
    # decrypts. OpenSSL 3.0 does not leave it to the system.
    "NO_SUITABLE_RECORD_LAYER": "it has new keys (KeyUpdate), which the system's TLS does not take "
    "(ssl.kernel.tls=never avoids this)",
}


def explained(error: Exception) -> str:
    """The error's meaning, with OpenSSL's own name of it, on one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{_MEANINGS['CERTIFICATE_VERIFY_FAILED']}: {error.verify_message}"
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    if isinstance(error, ssl.SSLEOFError):
        return "the peer closed it before the end"
    if not reason:
        return str(error)
    meaning = _MEANINGS.get(reason)
    return str(reason) if meaning is None else f"{meaning} ({reason})"
