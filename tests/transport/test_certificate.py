"""What certificates may be, and which sentence is told about a file that cannot be used."""

import ssl
import warnings

import pytest

from aiops.errors import ConfigError
from aiops.transport.certificate import Tls, client_context, server_context
from tests.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def files(authority, tmp_path_factory):
    """Files by name, good ones and others."""
    place = tmp_path_factory.mktemp("files")
    own, other = authority.sign("own", "localhost"), authority.sign("other", "localhost")
    (place / "noise").write_bytes(b"\xff\x00 no PEM")
    (place / "empty").write_bytes(b"")
    (place / "broken").write_text(
        "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n"
    )
    (place / "both").write_bytes(own.cert.read_bytes() + own.key.read_bytes())
    (place / "encrypted").write_bytes(encrypted(own.key.read_bytes()))
    named = {name: place / name for name in ("noise", "empty", "broken", "both", "encrypted")}
    return {
        **named,
        "cert": own.cert,
        "key": own.key,
        "other key": other.key,
        "ca": authority.file,
        "nowhere": place / "nowhere",
        "folder": place,
    }


def encrypted(key):
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    return load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )


@pytest.mark.parametrize("make", [server_context, client_context])
@pytest.mark.parametrize(
    ("given", "named", "sentence"),
    [
        ({"cert": "nowhere"}, "nowhere", "cannot read the certificate {}: No such file"),
        ({"cert": "folder"}, "folder", "cannot read the certificate {}: Is a directory"),
        ({"cert": "cert", "key": "nowhere"}, "nowhere", "cannot read the key {}: No such file"),
        ({"cert": "cert"}, "cert", "the key {} is no PEM file with a private key in it"),
        ({"cert": "cert", "key": "cert"}, "cert", "the key {} is no PEM file with a private key"),
        ({"cert": "key", "key": "key"}, "key", "the certificate {} is no PEM file with a cert"),
        ({"cert": "noise", "key": "key"}, "noise", "the certificate {} is no PEM file"),
        ({"cert": "empty", "key": "key"}, "empty", "the certificate {} is no PEM file"),
        ({"cert": "broken", "key": "broken"}, "broken", "cannot use certificate {} with key"),
        ({"cert": "cert", "key": "other key"}, "cert", "does not belong to certificate {}"),
        ({"cert": "cert", "key": "encrypted"}, "encrypted", "key {} is encrypted: decrypt it"),
        ({"cert": "both", "ca": "nowhere"}, "nowhere", "cannot read the authorities {}: No such"),
        ({"cert": "both", "ca": "key"}, "key", "the authorities {} is no PEM file with a cert"),
        ({"cert": "both", "ca": "broken"}, "broken", "cannot use the authorities {}: "),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_fault(make, given, named, sentence, files):
    tls = Tls(**{option: files[name] for option, name in given.items()})
    with pytest.raises(ConfigError) as caught:
        make(tls)
    assert sentence.format(files[named]) in str(caught.value)


def test_a_certificate_and_its_key_may_be_one_file_and_paths_may_be_text(files):
    assert server_context(Tls(cert=str(files["both"]))).verify_mode is ssl.CERT_NONE


def test_a_server_needs_a_certificate_and_asks_for_others_when_it_has_authorities(files):
    with pytest.raises(ConfigError, match="tls has no certificate, a server needs one to show"):
        server_context(Tls(ca=files["ca"]))
    context = server_context(Tls(cert=files["cert"], key=files["key"], ca=files["ca"]))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_worker_always_checks_the_server_and_shows_itself_only_with_a_certificate(files):
    for tls in (Tls(), Tls(ca=files["ca"]), Tls(cert=files["both"])):
        context = client_context(tls)
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    with pytest.raises(ConfigError, match=r"there is a key, .*, and no certificate"):
        client_context(Tls(key=files["key"]))


def test_neither_end_shakes_hands_again_on_a_connection_that_stands(files):
    # OpenSSL 3 refuses a client's wish by itself, 1.1.1 grants it; a client grants a server's in both.
    assert server_context(Tls(cert=files["both"])).options & ssl.OP_NO_RENEGOTIATION
    assert client_context(Tls(ca=files["ca"])).options & ssl.OP_NO_RENEGOTIATION


def test_a_context_of_ones_own_is_taken_as_it_is_unless_it_is_of_the_other_end():
    mine, theirs = (
        ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    assert server_context(mine) is mine
    assert client_context(theirs) is theirs
    with pytest.raises(ConfigError, match="of the other end's kind, it must be a server's"):
        server_context(theirs)
    with pytest.raises(ConfigError, match="of the other end's kind, it must be a worker's"):
        client_context(mine)
    with pytest.raises(
        ConfigError, match=r"tls is True, it must be aiops.Tls or an ssl.SSLContext"
    ):
        server_context(True)


def lax(**settings):
    """Return a context of no end's kind, with these attributes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context = ssl.SSLContext()
    for name, value in settings.items():
        setattr(context, name, value)
    return context


@pytest.mark.parametrize(
    "settings",
    [{}, {"verify_mode": ssl.CERT_REQUIRED}, {"verify_mode": ssl.CERT_OPTIONAL}],
)
def test_a_workers_context_that_checks_nothing_is_refused(settings):
    with pytest.raises(ConfigError, match="does not check the server's certificate"):
        client_context(lax(**settings))


def test_a_workers_context_that_checks_or_was_told_by_name_not_to_is_taken():
    told = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    told.check_hostname = False
    told.verify_mode = ssl.CERT_NONE
    checks = lax(verify_mode=ssl.CERT_REQUIRED, check_hostname=True)
    for context in (told, checks, ssl.create_default_context()):
        assert client_context(context) is context
    assert server_context(told_server := lax()) is told_server


@pytest.mark.parametrize("make", [server_context, client_context])
def test_the_oldest_version_is_ours_whatever_the_systems_is(monkeypatch, make, files):
    new = ssl.SSLContext.__new__

    def old(cls, *args):
        context = new(cls, *args)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
        return context

    monkeypatch.setattr(ssl.SSLContext, "__new__", staticmethod(old))
    context = make(Tls(cert=files["cert"], key=files["key"]))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
