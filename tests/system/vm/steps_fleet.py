"""Steps: a fleet of one. mosquitto with TLS and rights in the guest, a device that is enrolled,
a signed command, a forged one, and a delta over the air past a broker that dies.

stoker-ota plays the operator in the guest, on the keys that bundles.py has made.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tests.system.vm.bundles import NAME
from tests.system.vm.field import USER, Field
from tests.system.vm.guest import Done
from tests.system.vm.report import expect
from tests.system.vm.steps_models import MEDIA
from tests.system.vm.steps_updates import ADMIN, at_rest, prepare_model, serves, tidy
from tests.system.vm.table import Step

DEVICE: Final = "dev-vm"
_HOME: Final = "/root/operator"
_BROKER: Final = "/var/lib/fleet-broker"
_DROP_IN: Final = "/etc/stoker/stoker.d/61-fleet.toml"
_CA: Final = "/etc/stoker/fleet-ca.pem"
_SETTINGS: Final = f"""\
[device]
id = "{DEVICE}"
[updates]
sources = ["mqtt:"]
max_rate = 400000
[fleet]
broker = "mqtts://localhost"
ca = "{_CA}"
certificate = "/var/lib/stoker/fleet/device.pem"
key = "/var/lib/stoker/fleet/device.key"
reconnect_cap_s = 5.0
"""
_CONF: Final = f"""\
listener 8883
cafile {_BROKER}/devices.pem
certfile {_BROKER}/server.pem
keyfile {_BROKER}/server.key
require_certificate true
use_identity_as_username true
allow_anonymous false
acl_file {_BROKER}/acl
set_tcp_nodelay true
persistence true
persistence_location {_BROKER}/
"""
# The operator's folder, and a certificate request of a person at a keyboard.
_OPERATOR: Final = f"""\
set -e
rm -rf {_HOME} && mkdir -p {_HOME} && cd {_HOME}
cp -r {MEDIA}/pki .
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout operator.key \
    -subj /CN=operator -out operator.csr
"""
_START: Final = f"""\
set -e
cp {MEDIA}/tls/server.pem {MEDIA}/tls/server.key {_HOME}/pki/certificates/devices.pem {_BROKER}/
chown -R mosquitto: {_BROKER}
chmod 700 {_BROKER}
systemd-run --unit=fleet-broker --property=Restart=always --property=RestartSec=2 \
    /usr/sbin/mosquitto -c {_BROKER}/mosquitto.conf
"""
_END: Final = f"""\
systemctl stop stoker.service fleet-broker.service
rm -rf {_HOME} {_BROKER} {_DROP_IN} {_CA} /var/lib/stoker/fleet*
"""


def _ota(field: Field, *words: str, timeout_s: float = 200.0, folder: str = _HOME) -> Done:
    """stoker-ota in the operator's folder, as the operator."""
    line = 'cd "$1" && shift && exec env STOKER_OTA_PASSPHRASE="correct horse" stoker-ota "$@"'
    return field.guest.run(["sh", "-c", line, "sh", folder, *words], timeout_s=timeout_s)


def _online(*words: str) -> tuple[str, ...]:
    return (
        *words, "--broker", "mqtts://localhost", "--ca", _CA,
        "--certificate", f"{_HOME}/operator.pem", "--key", f"{_HOME}/operator.key",
    )  # fmt: skip


def _command(field: Field, *words: str, wait_s: int = 120, folder: str = _HOME) -> Done:
    asked = ("command", *words, "--device", DEVICE, "--wait-s", str(wait_s), "--json")
    return _ota(field, *_online(*asked), timeout_s=wait_s + 60, folder=folder)


def _fleet(field: Field) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(
        field.guest.text(["stokerctl", "--json", "fleet"], user=USER)
    )  # fmt: skip
    return told


def _is_online(field: Field) -> bool:
    return bool(field.told("Fleet1", "State") == "online")


def fleet(field: Field) -> str:
    """A key that never leaves, a certificate by the operator, a broker that demands it."""
    guest = field.guest
    tidy(field)  # whatever steps of updates ran before
    prepare_model(field)
    guest.run(["install", "-m", "644", f"{MEDIA}/tls/ca.pem", _CA]).must()
    field.write_setting(_DROP_IN, _SETTINGS)
    field.restart()
    serves(field, 0)
    guest.run(["stokerctl", "fleet", "enroll"], user=USER).must_fail("an enrolment by anyone")
    request = guest.run(["stokerctl", "fleet", "enroll"], user=ADMIN, timeout_s=90).must("enroll")
    guest.run(_OPERATOR).must("found the operator")
    guest.write(f"{_HOME}/{DEVICE}.csr", request.out)
    rights: list[str] = []
    for name in ("operator", DEVICE):
        words = ("device", "enroll", f"{name}.csr", "--device", name, "-o", f"{name}.pem", "--json")
        rights = json.loads(_ota(field, *words).must(f"sign {name}").out)["mosquitto"]
    acl = ["user operator", "topic readwrite stoker/1/#", *rights]
    guest.write(f"{_BROKER}/acl", "\n".join(acl) + "\n")
    guest.write(f"{_BROKER}/mosquitto.conf", _CONF)
    guest.run(_START).must("start the broker")
    guest.run(["install", "-m", "644", f"{_HOME}/{DEVICE}.pem", f"/tmp/{DEVICE}.pem"]).must()
    guest.run(
        ["stokerctl", "fleet", "adopt", f"/tmp/{DEVICE}.pem"], user=ADMIN, timeout_s=120
    ).must("adopt")  # fmt: skip
    seconds = guest.until("the connection", lambda: _is_online(field), timeout_s=90)
    mode = guest.text("stat -c '%U %a' /var/lib/stoker/fleet/device.key")
    expect(mode == "stoker 600", f"the device's key is {mode}")
    test = guest.run(["stokerctl", "fleet", "test"], user=ADMIN, timeout_s=90).must("fleet test")
    return f"let in after {seconds:.0f} s; {len(test.text.splitlines())} lines of fleet test"


def fleet_command(field: Field) -> str:
    """What is signed is done and answered; what another one has signed is not."""
    keys = 'keys=["inference.max_tokens"]'
    done = _command(field, "config.get", keys).must("a signed command")
    answer = json.loads(done.out)["devices"][DEVICE]
    expect(answer["state"] == "succeeded", f"the answer: {answer}")
    stranger = f"{_HOME}/stranger"
    field.guest.run(["mkdir", "-p", stranger]).must()
    _ota(field, "init-pki", folder=stranger).must("another operator's keys")
    before = int(_fleet(field)["forged"])
    _command(field, "runtime.restart", wait_s=8, folder=stranger).must_fail("a forged command")
    expect(int(_fleet(field)["forged"]) > before, "a forged command was not counted")
    field.answers()
    return f"{answer['data']['settings']}; forged: no answer"


def fleet_update(field: Field) -> str:
    """Chunks over TLS, a broker that is killed in the middle, the set in use at the end."""
    guest = field.guest
    _ota(field, *_online("publish", f"{MEDIA}/bundle-1")).must("publish")
    line = 'cd "$1" && shift && exec env STOKER_OTA_PASSPHRASE="correct horse" stoker-ota "$@"'
    words = _online(
        "command", "update.install", f"deployment={NAME}", "--device", DEVICE, "--wait-s", "240",
        "--json",
    )  # fmt: skip
    running = guest.start(["sh", "-c", line, "sh", _HOME, *words], timeout_s=300)
    guest.until("chunks on their way", lambda: field.told("Update1", "State") == "fetching",
                timeout_s=120)  # fmt: skip
    # It keeps what is retained when it is asked to, and is killed then.
    guest.run("systemctl kill -s USR1 fleet-broker; sleep 1; systemctl kill -s KILL fleet-broker")
    done = guest.wait(running)
    seconds = at_rest(field, 1)
    guest.until("the connection", lambda: _is_online(field), timeout_s=90)
    asked = _command(field, "update.install", f"deployment={NAME}", "version=1")
    answer = json.loads(asked.must("the same command again").out)["devices"][DEVICE]
    expect(answer["state"] == "succeeded", f"the answer: {answer}")
    return f"exit {done.code} of the command that the broker left; set 1 after {seconds:.0f} s"


def fleet_end(field: Field) -> str:
    """Nothing of it stays for the steps to come."""
    field.guest.run(_END).must()
    tidy(field)
    return "without a broker; the model that was there before"


STEPS: tuple[Step[Field], ...] = (
    Step("fleet", "mosquitto with TLS; the device is enrolled, signed for, and let in",
         fleet, ("small",), "second"),
    Step("fleet-command", "a signed command is answered, a forged one is not",
         fleet_command, ("fleet",), "second"),
    Step("fleet-update", "a delta over the air; the broker is killed meanwhile",
         fleet_update, ("fleet-command",), "second"),
    Step("fleet-end", "without a fleet again", fleet_end, ("fleet",), "second"),
)  # fmt: skip
