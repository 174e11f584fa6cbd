"""A role that takes two signers: neither of them alone makes anything that a device takes."""

from __future__ import annotations

import shutil
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
    """Two people: ``pki`` has the first key of each role, ``bob`` the second ones. Certificates
    are everybody's."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    ota(f"init-pki --threshold 2 --now {WHEN}")
    shutil.copytree("pki/certificates", "bob/certificates")
    Path("bob/keys").mkdir()
    for path in Path("pki/keys").glob("*-2.pem"):
        if not path.name.startswith(("anchor", "intermediate")):
            path.rename(Path("bob/keys", path.name))
    Path("chat.toml").write_text(RECIPE)
    Path("v2").write_bytes(b"a model" * 100)
    return tmp_path


def believed(trust: str, catalog: str, chat: str) -> int:
    """The manifest's version, as a device judges it."""
    known = read_trust(Path(trust))
    listed = gate.accept_catalog(Path(catalog).read_bytes(), known, Floors(), None, NOW).catalog
    envelope = Path(chat).read_bytes()
    return gate.accept_manifest("chat", envelope, known, listed, Floors(), NOW).version


def opened(name: str) -> gate.Signed:
    """A manifest, as devices judge its signers."""
    trust, data = read_trust(Path("pki/trust/1.json")), Path(name).read_bytes()
    return gate.open_signed(data, MANIFEST_TYPE, "release", trust, max_bytes=1 << 16)


def test_one_signer_alone_is_not_enough_and_both_are(home: Path) -> None:
    ota(f"manifest make chat.toml -o half.json --now {WHEN}")
    ota("sign half.json --role release --pki bob -o chat.json")
    ota(f"catalog make chat.json -o half-catalog.json --now {WHEN}")
    with pytest.raises(BadSignature, match="1 of 2"):
        believed("pki/trust/1.json", "half-catalog.json", "chat.json")
    ota("sign half-catalog.json --role catalog --pki bob -o catalog.json")
    assert believed("pki/trust/1.json", "catalog.json", "chat.json") == 1
    with pytest.raises(BadSignature, match="1 of 2"):
        opened("half.json")


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


def half_signed(capsys: pytest.CaptureFixture[str]) -> bool:
    return "1 of 2 signers" in capsys.readouterr().err


def co_signed(version: int) -> bytes:
    """Trust with Bob's signature in its place; its bytes."""
    path = Path(f"pki/trust/{version}.json")
    ota(f"sign {path} --role trust --pki bob -o both.json")
    Path("both.json").replace(path)
    return path.read_bytes()


def test_the_second_signer_s_key_is_changed_with_everybody_s_consent(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when it is lost; the new one moves to Bob."""
    first = read_trust(Path("pki/trust/1.json"))
    Path("bob/keys/release-2.pem").unlink()
    steps = []
    for version, words in ((2, "release --signer 2 --revoke"), (3, "trust --revoke")):
        ota(f"trust rotate {words} --now {WHEN}")
        assert half_signed(capsys)
        steps.append(co_signed(version))
    Path("pki/keys/release-2.pem").rename("bob/keys/release-2.pem")
    shutil.copytree("pki/certificates", "bob/certificates", dirs_exist_ok=True)
    last, _ = gate.walk_trust(steps, first)
    assert (last.version, len(last.revoked)) == (3, 2)
    ota(f"manifest make chat.toml -o half.json --now {WHEN}")
    assert half_signed(capsys)
    ota("sign half.json --role release --pki bob -o chat.json")
    assert "signed by release, release-2" in capsys.readouterr().out
    ota(f"catalog make chat.json -o half-catalog.json --now {WHEN}")
    ota("sign half-catalog.json --role catalog --pki bob -o catalog.json")
    assert believed("pki/trust/3.json", "catalog.json", "chat.json") == 1


def test_nobody_is_two_people_by_an_old_key_and_a_new_one(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --revoke both keys may sign; together they are still one signer."""
    shutil.copytree("pki", "old")
    ota(f"trust rotate release --now {WHEN}")
    ota(f"manifest make chat.toml -o half.json --now {WHEN}")
    ota("sign half.json --role release --pki old -o twice.json")
    capsys.readouterr()
    with pytest.raises(BadSignature, match="1 of 2"):
        opened("twice.json")
    co_signed(2)
    first = read_trust(Path("pki/trust/1.json"))
    ota(f"trust rotate trust --now {WHEN}")
    with pytest.raises(BadSignature, match="1 of 2"):
        gate.walk_trust([Path(f"pki/trust/{n}.json").read_bytes() for n in (2, 3)], first)


def test_nothing_follows_a_trust_that_others_have_still_to_sign(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ota(f"trust renew --now {WHEN}")
    for words in ("renew", "rotate release", "revoke pki/certificates/fleet.pem"):
        ota(f"trust {words}", status=65)
        assert "cannot go on from pki/trust/2.json: " in capsys.readouterr().err
    co_signed(2)
    ota(f"trust renew --now {WHEN}")


def test_a_signer_of_trust_is_not_revoked_without_another_in_the_place(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Too few would be left to sign this version, and every later one."""
    for name, words in (("trust", "trust --revoke"), ("trust-2", "trust --signer 2 --revoke")):
        ota(f"trust revoke pki/certificates/{name}.pem", status=64)
        said = capsys.readouterr().err
        assert "it would sign this trust" in said
        assert f"trust rotate {words}" in said
    ota(f"trust revoke pki/certificates/release.pem --now {WHEN}")
    first = read_trust(Path("pki/trust/1.json"))
    with pytest.raises(BadSignature, match="1 of 2"):
        gate.accept_trust(Path("pki/trust/2.json").read_bytes(), first)
    assert len(gate.accept_trust(co_signed(2), first).revoked) == 1
    ota("trust revoke pki/certificates/release.pem", status=64)
    assert "revoked already" in capsys.readouterr().err


@pytest.mark.parametrize("role", ["catalog", "trust"])
def test_a_signature_that_can_never_count_is_not_added(
    home: Path, capsys: pytest.CaptureFixture[str], role: str
) -> None:
    ota(f"manifest make chat.toml -o half.json --now {WHEN}")
    ota(f"sign half.json --role {role} --pki bob -o both.json", status=64)
    assert "of the role release or policy" in capsys.readouterr().err
    assert not Path("both.json").exists()


def test_a_command_that_too_few_have_signed_is_not_sent(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "command runtime.restart --device a --broker mqtt://127.0.0.1:1"
    ota(words, status=77)
    assert "1 of 2" in capsys.readouterr().err
