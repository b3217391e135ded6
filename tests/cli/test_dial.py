"""The owner of a data directory is reached however it listens, and nobody else is taken for it."""

from hashlib import sha256
from ssl import PEM_cert_to_DER_cert
from urllib.parse import urlsplit

import pytest
import trustme

from holdfast.cli.dial import connect, dial
from holdfast.stores.owner import owner
from tests.cli.test_far import KEY, serving

pytestmark = pytest.mark.real_time


def configured(folder, lines):
    file = folder / "holdfast.toml"
    file.write_text(
        f'[models.demo]\nwire = "demo"\noptions = {{ pace = 0 }}\n[tools]\nterminal = false\n'
        f"[server]\n{lines}"
    )
    return "--config", str(file)


@pytest.fixture
def certified(tmp_path):
    """Options to speak TLS, as somebody of another name, by an authority that nobody here knows."""
    issued = trustme.CA().issue_cert("runs.example.org")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "cert.pem")
    return configured(tmp_path, 'tls_cert = "cert.pem"\ntls_key = "cert.pem"\n')


@pytest.mark.parametrize(("any", "here"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_an_owner_that_listens_everywhere_is_talked_to(
    tmp_path, data, holdfast, monkeypatch, any, here
):
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    options = configured(tmp_path, f'host = "{any}"\nbehind_proxy = true\n')
    with serving(data, 0, *options):
        assert owner(data).address.startswith(f"http://{here}:")
        assert holdfast("run", "hello").returncode == 0


def test_an_owner_with_a_certificate_for_another_name_is_talked_to(
    data, holdfast, monkeypatch, certified
):
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    with serving(data, 0, *certified) as (url, _):
        assert holdfast("run", "hello").returncode == 0
        named = holdfast("runs", "--url", url, text=True)
        # Who is named has to prove who it is.
        assert named.returncode == 74 and "certificate" in named.stderr


async def test_whoever_shows_another_certificate_is_not_the_owner_and_is_told_nothing(
    data, tmp_path, certified
):
    with serving(data, 0, *certified) as (url, _):
        der = PEM_cert_to_DER_cert((tmp_path / "cert.pem").read_text().split("KEY-----\n")[-1])
        there, pin = urlsplit(url), owner(data).pin
        assert pin == sha256(der).hexdigest()
        await (await dial(there, pin)).aclose()
        other = "0" * 64
        with pytest.raises(OSError, match="does not show the certificate"):
            await dial(there, other)
        asked = connect(there, other, 10)
        with pytest.raises(OSError, match="does not show the certificate"):
            asked.request("GET", "/health")
        asked.close()
