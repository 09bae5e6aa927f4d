"""HTTPS."""

import ssl

from corelm.api import ConfigurationError
from corelm_openai.settings import OpenAISettings


def tls_context(settings: OpenAISettings) -> ssl.SSLContext | None:
    """How to encrypt connections; None if they are not to be. Raises `ConfigurationError`."""
    cert, key, ca = settings.tls_cert, settings.tls_key, settings.tls_ca
    if cert is None or key is None:
        if (cert, key, ca) != (None, None, None):
            raise ConfigurationError("openai.tls_cert and openai.tls_key go together, and openai.tls_ca needs both")
        return None
    for name, path in (("tls_cert", cert), ("tls_key", key), ("tls_ca", ca)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"openai.{name}: cannot read {path}: {error.strerror}") from error
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key, password="")  # without one, OpenSSL would ask on the terminal
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"openai.tls_cert: {cert} and {key} are not a certificate and its key in PEM, or the key is encrypted"
        ) from error
    if ca is not None:
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError as error:
            raise ConfigurationError(f"openai.tls_ca: {ca} has no certificates in PEM") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
