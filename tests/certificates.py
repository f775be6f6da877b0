"""Certificates for tests, made once a run: an authority, a server's, a worker's, and whatever is wrong with others."""

import datetime
import functools

from aiops.transport.certificate import Tls, client_context, server_context


class Authority:
    """Signs certificates and writes them, with their keys, into a directory."""

    def __init__(self, place):
        import trustme

        self._ca = trustme.CA()
        self._place = place
        place.mkdir(exist_ok=True)
        self.file = place / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def sign(self, name, *identities, **options):
        """Return a certificate for hosts or people, with its key, as Tls without authorities."""
        cert, key = self._place / f"{name}.pem", self._place / f"{name}.key"
        made = self._ca.issue_cert(*identities, **options)
        made.private_key_pem.write_to_path(str(key))
        cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        return Tls(cert=cert, key=key)

    def server(self, name="server", *identities, mutual=True, **options):
        """Return what a server of these addresses (this machine's unless given) is told."""
        own = self.sign(name, *(identities or ("localhost", "127.0.0.1", "::1")), **options)
        return Tls(cert=own.cert, key=own.key, ca=self.file if mutual else None)

    def worker(self, name="worker", **options):
        """Return what a worker is told that has a certificate."""
        own = self.sign(name, f"{name}@example.org", **options)
        return Tls(cert=own.cert, key=own.key, ca=self.file)


def expired():
    """Return the options of a certificate that was good until yesterday."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "not_before": now - datetime.timedelta(days=9),
        "not_after": now - datetime.timedelta(days=1),
    }


@functools.cache
def contexts():
    """Return a server's and a worker's contexts for mutual TLS on this machine."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as place:
        authority = Authority(Path(place))
        return server_context(authority.server()), client_context(authority.worker())
