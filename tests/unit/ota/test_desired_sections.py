"""What an operator writes wrong is found before it is signed, and never as a traceback."""

from __future__ import annotations

import contextlib
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from stoker.core import fleet_desired
from stoker_ota.cli import main
from stoker_ota.core import clock, desired_sections, fleet_documents, fleet_orders, strict_json
from stoker_ota.core.fleet_documents import Target
from stoker_ota.core.topics import Topics
from stoker_ota.errors import BadDocument, InvalidRequest, OtaError
from stoker_ota.services import device_ca

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def desired(text: str, days: int = 90) -> fleet_documents.Desired:
    table = tomllib.loads('audience = "g:blue"\n' + text)
    return fleet_orders.desired(table, None, NOW, days)


@pytest.mark.parametrize(
    "text", ['[update]\ndeployment = "chat"\nversion = 7\nconsent = true\nretry = "x"',
             '[update]\ndeployment = "chat"', '[policy]\n"inference.max_tokens" = 9',
             '[policy.inference]\nmax_tokens = 9', '[runtime]\npaused = true\nmodel = "small"',
             '[campaign]\nid = "c"\npercent = 10\npaused = false', "[campaign]", "[runtime]"],
)  # fmt: skip
def test_what_the_page_shows_is_taken(text: str) -> None:
    assert fleet_documents.desired_payload(desired(text))


@pytest.mark.parametrize(
    ("text", "where"),
    [('[update]\ndeployment = "chat"\nversoin = 7', "update.versoin"),
     ("[update]\nversion = 7", "update.deployment"),
     ('[update]\ndeployment = "chat"\nversion = 1.5', "update.version"),
     ('[update]\ndeployment = "chat"\nconsent = "yes"', "update.consent"),
     ('[runtime]\npaused = "yes"', "runtime.paused"),
     ("[runtime]\nmodle = 'x'", "runtime.modle"),
     ('[campaign]\npercent = "a"', "campaign.percent"),
     ('[campaign]\npercent = nan', "campaign.percent"),
     ('[campaign]\npaused = "true"', "campaign.paused"),
     ("[campaign]\nturn = 1", "campaign"),
     ("[policy]\nx = 2026-01-01", "policy.x"),
     ("version = true", "version"), ("version = -1", "version")],
)  # fmt: skip
def test_a_slip_of_the_pen_is_named(text: str, where: str) -> None:
    with pytest.raises(OtaError) as found:
        desired(text)
    assert where in found.value.message


def test_a_campaign_that_does_not_say_clearly_that_it_goes_on_holds() -> None:
    for paused in (True, "true", 1, None, 0):
        assert not fleet_desired.takes_part({"percent": 100, "paused": paused}, "dev-1")
    assert fleet_desired.takes_part({"percent": 100, "paused": False}, "dev-1")
    assert fleet_desired.takes_part({}, "dev-1")


VALUES = st.none() | st.booleans() | st.floats() | st.text()


@given(
    st.sampled_from(("update", "policy", "runtime", "campaign")),
    st.dictionaries(st.text(max_size=8), VALUES),
)
def test_any_section_is_taken_or_refused(name: str, values: dict[str, object]) -> None:
    with contextlib.suppress(OtaError):
        desired_sections.check({name: values})


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), NOW, {"a": [NOW.date()]}, "\ud800", b"x", {1, 2}]
)
def test_what_json_has_no_word_for_is_a_typed_error(value: object) -> None:
    with pytest.raises(BadDocument, match="cannot write the document"):
        strict_json.dumps({"value": value})


@pytest.mark.parametrize("days", [10**6 * 9, 10**9, 10**12])
def test_days_beyond_the_calendar_are_refused(days: int) -> None:
    for act in (
        lambda: desired("", days),
        lambda: clock.later(NOW, days),
        lambda: fleet_orders.command("cancel", Target(device="d"), (), identity="x", sequence=1,
                                     now=NOW, life_s=days * 86_400),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest):
            act()


@pytest.mark.parametrize("days", [-5, 0, 36_501, 10**12])
def test_no_certificate_of_a_device_is_made_for_nothing_or_for_ever(days: int) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dev-1")])
    asked = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    holder = device_ca.found("Example", NOW, key)
    with pytest.raises(InvalidRequest, match="days"):
        device_ca.sign(asked.public_bytes(Encoding.PEM), "dev-1", holder, NOW, days)


WORDS = {
    "command": ["command", "report.state", "--device", "dev-1"],
    "desired": ["desired", "state.toml"],
    "campaign": ["campaign", "report"],
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("trust", ["", "{}", "no folder"])
def test_a_folder_without_keys_or_trust_is_named_and_nothing_is_made_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    words: list[str], trust: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state.toml").write_text('audience = "g:blue"\n')
    folder = tmp_path / "pki"
    if trust == "{}":
        (folder / "trust").mkdir(parents=True)
        (folder / "trust/1.json").write_text(trust)
    status = main.run([*words, "--pki", str(folder), "--broker", f"unix:{tmp_path}/none"])
    assert status in (65, 66)
    assert str(folder) in capsys.readouterr().err
    assert {file.name for file in folder.rglob("*")} <= {"trust", "1.json"}


def test_rules_are_printed_for_no_root_that_a_broker_would_not_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "pki")
    words = ["device", "enroll", "x.csr", "--device", "d", "-o", "x.pem", "--root", "#"]
    assert main.run([*words, "--pki", folder]) == 64
    assert "below '#'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a b", "\x1b[31m", "x" * 65, "", "ä", "a\n"])
def test_a_name_that_no_device_has_is_nobody(name: str) -> None:
    assert Topics().whose(f"stoker/1/d/{name}/state") == ("", "")
    assert Topics().whose("stoker/1/d/dev-1/up/a/1") == ("dev-1", "up/a/1")
