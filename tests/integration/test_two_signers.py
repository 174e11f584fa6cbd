"""A role that takes two signers: neither of them alone makes anything that a device takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.update_bundles import environment

from stoker_ota.cli.keyring import read_trust
from stoker_ota.cli.main import run as main
from stoker_ota.core import clock, gate
from stoker_ota.core.clock import Now
from stoker_ota.core.floors import Floors
from stoker_ota.core.manifest import MANIFEST_TYPE
from stoker_ota.errors import BadSignature

WHEN = "2026-01-31T12:00:00Z"
NOW = Now(clock.parse("2026-02-01T00:00:00Z", "now"), trusted=True)
HEAD = 'deployment_id = "chat"\nversion = 1\n[[artifacts]]\nkind = "model"\nname = "chat"\n'
RECIPE = HEAD + 'version = "2"\nrelease_counter = 2\nfile = "v2"\n'


def ota(line: str, status: int = 0) -> None:
    assert main(line.split()) == status


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two people: ``pki`` has the first key of each role, ``bob`` the second ones."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    ota(f"init-pki --threshold 2 --now {WHEN}")
    for folder in ("keys", "certificates"):
        Path("bob", folder).mkdir(parents=True)
        for path in Path("pki", folder).glob("*-2.pem"):
            if not path.name.startswith(("anchor", "intermediate")):
                path.rename(Path("bob", folder, path.name))
    Path("chat.toml").write_text(RECIPE)
    Path("v2").write_bytes(b"a model" * 100)
    return tmp_path


def believed(trust: str, catalog: str, chat: str) -> int:
    """The manifest's version, as a device judges it."""
    known = read_trust(Path(trust))
    listed = gate.accept_catalog(Path(catalog).read_bytes(), known, Floors(), None, NOW).catalog
    envelope = Path(chat).read_bytes()
    return gate.accept_manifest("chat", envelope, known, listed, Floors(), NOW).version


def test_one_signer_alone_is_not_enough_and_both_are(home: Path) -> None:
    ota(f"manifest make chat.toml -o half.json --now {WHEN}")
    ota("sign half.json --role release --pki bob -o chat.json")
    ota(f"catalog make chat.json -o half-catalog.json --now {WHEN}")
    with pytest.raises(BadSignature, match="1 of 2"):
        believed("pki/trust/1.json", "half-catalog.json", "chat.json")
    ota("sign half-catalog.json --role catalog --pki bob -o catalog.json")
    assert believed("pki/trust/1.json", "catalog.json", "chat.json") == 1
    with pytest.raises(BadSignature, match="1 of 2"):
        gate.open_signed(
            Path("half.json").read_bytes(), MANIFEST_TYPE, "release",
            read_trust(Path("pki/trust/1.json")), max_bytes=1 << 16,
        )  # fmt: skip


def test_nobody_signs_twice(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ota(f"manifest make chat.toml -o half.json --now {WHEN}")
    ota("sign half.json --role release -o again.json", status=64)
    assert "every release key of pki has signed it" in capsys.readouterr().err
    assert not Path("again.json").exists()


def test_a_threshold_that_no_envelope_holds_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ota("init-pki --pki many --threshold 8", status=64)
    assert "outside 1..7" in capsys.readouterr().err
    assert not Path("many").exists()


def test_the_second_signer_s_key_is_changed_with_everybody_s_consent(home: Path) -> None:
    for folder in ("keys", "certificates"):  # both have come to one desk
        for path in Path("bob", folder).iterdir():
            path.rename(Path("pki", folder, path.name))
    first = read_trust(Path("pki/trust/1.json"))
    for words in ("release --signer 2 --revoke", "trust --signer 2 --revoke", "trust"):
        ota(f"trust rotate {words} --now {WHEN}")
    steps = [Path(f"pki/trust/{number}.json").read_bytes() for number in (2, 3, 4)]
    last, _ = gate.walk_trust(steps, first)
    assert (last.version, len(last.revoked)) == (4, 2)
    ota(f"manifest make chat.toml -o chat.json --now {WHEN}")
    ota(f"catalog make chat.json -o catalog.json --now {WHEN}")
    assert believed("pki/trust/4.json", "catalog.json", "chat.json") == 1


def test_a_signer_who_revokes_himself_is_refused_before_the_other_one_signs(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ota("trust revoke pki/certificates/trust.pem", status=64)
    assert "it would sign this trust" in capsys.readouterr().err
    ota(f"trust revoke pki/certificates/release.pem --now {WHEN}")
    ota("sign pki/trust/2.json --role trust --pki bob -o both.json")
    first = read_trust(Path("pki/trust/1.json"))
    with pytest.raises(BadSignature, match="1 of 2"):
        gate.accept_trust(Path("pki/trust/2.json").read_bytes(), first)
    assert len(gate.accept_trust(Path("both.json").read_bytes(), first).revoked) == 1
