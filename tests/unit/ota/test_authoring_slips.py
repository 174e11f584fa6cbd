"""An operator's slips: each is refused in words before a key or a document changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from stoker_ota.cli import keyring
from stoker_ota.cli.main import run as main
from stoker_ota.core import chain, fleet_orders, gate, strict_json
from stoker_ota.errors import BadDocument, NoSpace

MODEL = '[[artifacts]]\nkind = "model"\nname = "m"\nversion = "1"\nfile = "m.bin"\n'
HEAD = 'deployment_id = "a"\nversion = 1\n'


@pytest.fixture(scope="module")
def born(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("operator")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(keyring.VARIABLE, "a passphrase")
        assert main(["init-pki", "--pki", str(home / "pki")]) == 0
    return home / "pki"


@pytest.fixture
def home(born: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(born, tmp_path / "pki")
    monkeypatch.setenv(keyring.VARIABLE, "a passphrase")
    monkeypatch.chdir(tmp_path)
    Path("m.bin").write_bytes(b"weights")
    return tmp_path


def refused(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What was said. A traceback is no refusal."""
    assert main(words.split()) in (64, 65, 66)
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "issued_at = 2026-01-01\n" + MODEL, "date is not JSON"),
        (HEAD + "health = {min_tok_s = nan}\n" + MODEL, "not JSON"),
        ("x = " + "[" * 3000, "nested too deep"),
        ("x = " + "9" * 5000, "cannot read recipe"),
        ("artifacts = 3", "expected a list"),
        (HEAD + MODEL.replace("m.bin", "m\\u0000.bin"), "no name of a file"),
        (HEAD + MODEL.replace("m.bin", "/dev/zero"), "no regular file"),
    ],
)
def test_a_recipe_that_is_none(
    home: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    Path("recipe.toml").write_text(text)
    assert said in refused("manifest make recipe.toml -o out.json", capsys)
    assert not Path("out.json").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('audience = "d:x"\n[policy]\nx = 2026-01-01\n', "dates and times are no settings"),
        ('audience = "d:x"\n[policy]\nx = inf\n', "not JSON"),
        ("x = " + "[" * 3000, "nested too deep"),
    ],
)
def test_a_desired_state_that_is_none(
    home: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    Path("state.toml").write_text(text)
    assert said in refused("desired state.toml -o out.json", capsys)
    assert not Path("out.json").exists()


@pytest.mark.parametrize("days", ["0", "-5", "99999999", "²", "1e3", ""])
@pytest.mark.parametrize("command", ["init-pki --pki new", "trust rotate release", "trust renew"])
def test_a_life_that_no_document_has_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], command: str, days: str
) -> None:
    before = sorted(home.rglob("*"))
    assert main([*command.split(), "--days", days]) == 64
    assert "is outside 1..36500" in capsys.readouterr().err
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize("moment", ["1900-01-01T00:00:00Z", "9999-12-31T00:00:00Z"])
def test_a_moment_that_no_certificate_has(
    home: Path, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    assert "cannot sign as of" in refused(f"init-pki --pki new --now {moment}", capsys)
    assert not Path("new").exists()


def test_no_keys_are_made_for_a_trust_that_no_device_takes(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "threshold" in refused("init-pki --pki new --threshold 0", capsys)
    assert not Path("new").exists()


def test_a_rotation_that_failed_revokes_the_same_key_when_it_is_tried_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaked = x509.load_pem_x509_certificates(Path("pki/certificates/release.pem").read_bytes())[0]
    real: Callable[..., Path] = keyring.Keyring.save_trust

    def full(*_: object) -> Path:
        raise NoSpace("cannot write pki/trust/2.json: no space is left")

    monkeypatch.setattr(keyring.Keyring, "save_trust", full)
    words = ["trust", "rotate", "release", "--revoke"]
    assert main(words) != 0
    monkeypatch.setattr(keyring.Keyring, "save_trust", real)
    assert main(words) == 0
    trust = keyring.read_trust(Path("pki/trust/2.json"))
    assert trust.revoked == {chain.spki_hash(leaked)}
    assert Path("pki/keys/release.old-1.pem").exists()
    assert not Path("pki/keys/release.old-2.pem").exists()


@pytest.mark.parametrize("name", ["trust", "intermediate-1"])
def test_the_key_that_signs_trust_cannot_be_revoked_by_itself(
    home: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Devices would refuse such a document, and then every later one."""
    said = refused(f"trust revoke pki/certificates/{name}.pem", capsys)
    assert "trust rotate trust --revoke" in said
    assert not Path("pki/trust/2.json").exists()
    assert main(["trust", "rotate", "trust", "--revoke"]) == 0
    assert main(["trust", "renew"]) == 0
    known = keyring.read_trust(Path("pki/trust/1.json"))
    steps = [Path(f"pki/trust/{number}.json").read_bytes() for number in (2, 3)]
    assert gate.walk_trust(steps, known)[0].version == 3


@pytest.mark.parametrize("role", ["release", "trust"])
def test_a_key_that_is_lost_is_replaced_by_a_new_one(home: Path, role: str) -> None:
    Path(f"pki/keys/{role}.pem").unlink()
    assert main(["trust", "rotate", role, "--revoke"]) == 0
    known = keyring.read_trust(Path("pki/trust/1.json"))
    assert len(gate.accept_trust(Path("pki/trust/2.json").read_bytes(), known).revoked) == 1
    assert Path(f"pki/keys/{role}.pem").exists()


def test_a_bundle_is_not_made_of_a_manifest_that_its_catalog_does_not_mean(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("recipe.toml").write_text(HEAD + MODEL)
    for name in ("one", "other"):
        words = f"manifest make recipe.toml -o {name}.json --now 2026-01-1{len(name)}T12:00:00Z"
        assert main(words.split()) == 0
    assert main(["catalog", "make", "one.json", "-o", "catalog.json"]) == 0
    assert main(["bundle", "make", "catalog.json", "other.json", "-o", "usb"]) == 77
    assert "lists other bytes" in capsys.readouterr().err


def test_a_packed_bundle_is_not_called_a_folder(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "it is packed" in refused("verify m.bin --trust pki/trust/1.json", capsys)


def test_the_text_of_a_probe_stays_what_was_measured(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import tomllib

    text = 'a "b" \x85 \x7f \U0001f525 \n'
    Path("figures.jsonl").write_bytes(strict_json.dumps({"text": text, "nats_per_token": 2.0}))
    assert main(["probe", "make", "figures.jsonl"]) == 0
    (probe,) = tomllib.loads(capsys.readouterr().out)["health"]["probes"]
    assert probe["text"] == text


@pytest.mark.parametrize("text", ["NaN", "[" * 5000, "9" * 5000, "1e999", '{"a":1,"a":2}'])
def test_an_argument_that_is_no_json_for_devices_is_a_word(text: str) -> None:
    assert fleet_orders.value_of(text) == text


def test_an_argument_that_is_json_is_its_value() -> None:
    assert fleet_orders.value_of('{"a": [1, true]}') == {"a": [1, True]}


def test_a_command_s_life_is_bounded_before_it_is_a_time(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "command report.state --device d --expires-s 99999999999999999999 -o c.json"
    assert "outside 1..604800" in refused(words, capsys)


@pytest.mark.parametrize("value", [float("nan"), {"a": {1, 2}}, "\ud800", object()])
def test_what_json_has_not_is_not_written(value: object) -> None:
    with pytest.raises(BadDocument):
        strict_json.dumps(value)
