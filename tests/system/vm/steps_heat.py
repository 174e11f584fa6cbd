"""Steps: caps on a simulated board that is bind-mounted over the guest's /sys.

The service is as installed: its grant, its sandbox and its paths are the real ones.
"""

from __future__ import annotations

from tests.system.vm.field import Field
from tests.system.vm.report import expect
from tests.system.vm.table import Step

BOARD = "/run/field-board"
CAP = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"
FULL_KHZ = 1500000  # pi4-bare's highest step
_GRANTED = "root:stoker 664"
_SETTINGS = "/etc/stoker/stoker.d/60-field-board.toml"
_BROKEN = "/etc/stoker/stoker.d/99-broken.toml"
_TEMP = "/sys/class/thermal/thermal_zone0/temp"

_MAKE = f"""\
set -e
cd /media/stoker
export PYTHONPATH=/usr/lib/stoker
python3 -m bench.simulated_board pi4-bare --root {BOARD} --warm 60 --duration 0.2
mount --bind {BOARD}/devices/system/cpu/cpufreq /sys/devices/system/cpu/cpufreq
mount --bind {BOARD}/class/thermal /sys/class/thermal
"""
_AWAY = f"""\
umount /sys/devices/system/cpu/cpufreq; umount /sys/class/thermal
rm -rf {BOARD} {_SETTINGS}
"""


def _heat(field: Field, celsius: float) -> None:
    field.guest.write(_TEMP, f"{int(celsius * 1000)}\n")


def cap_khz(field: Field) -> int:
    return int(field.guest.text(["cat", CAP]))


def board_on(field: Field) -> None:
    """From now on the service watches and caps the simulated board."""
    field.guest.run(_MAKE, timeout_s=120).must()
    field.guest.write(_SETTINGS, '[thermal]\nboard = "raspberrypi-4"\n')
    field.restart()


def board_away(field: Field) -> None:
    field.guest.run(_AWAY).must()


def hold(field: Field) -> int:
    """Heats the board until the service holds a cap; returns it, in kHz."""
    _warm_up(field)
    field.guest.until("a cap", lambda: cap_khz(field) < FULL_KHZ, timeout_s=90)
    return cap_khz(field)


def _warm_up(field: Field) -> None:
    """Step by step: a jump would be taken for a broken sensor."""
    for celsius in range(60, 86, 3):
        _heat(field, celsius)
        field.guest.run(["sleep", "0.5"])


def _send(field: Field, signal: str) -> None:
    kill = ["systemctl", "kill", "-s", signal, "--kill-whom=main", "stoker.service"]
    field.guest.run(kill).must()


def cap(field: Field) -> str:
    """Heat rises, a cap is written by an unprivileged daemon; a stop gives it back."""
    guest = field.guest
    board_on(field)
    expect(_owner(field) == _GRANTED, f"the grant left {_owner(field)}")
    guest.run(["sh", "-c", f"echo 600000 >{CAP}"], user="tester").must_fail("a cap by anyone")
    _warm_up(field)
    seconds = guest.until("a cap", lambda: cap_khz(field) < FULL_KHZ, timeout_s=60)
    held, seen = cap_khz(field), field.thermal()
    expect(0 < seen["Cap"] <= FULL_KHZ, f"the bus says the cap is {seen['Cap']}")
    expect(seen["Headroom"] < 1.0, f"the bus says the headroom is {seen['Headroom']}")
    journal = guest.text("cat /run/stoker/*cap*")
    expect('"original_khz"' in journal, f"no journal of the cap: {journal}")
    guest.run(["systemctl", "stop", "stoker.service"], timeout_s=90).must()
    expect(cap_khz(field) == FULL_KHZ, f"the stop left a cap of {cap_khz(field)} kHz")
    guest.run(["systemctl", "start", "stoker.service"], timeout_s=90).must()
    return (
        f"{held} kHz of {FULL_KHZ} {seconds:.0f} s after 84 °C ({seen['State']}); stop restored it"
    )


def _owner(field: Field) -> str:
    return field.guest.text(["stat", "-c", "%U:%G %a", CAP])


def regrant(field: Field) -> str:
    """A CPU that comes online has new files, which are root's: udev sees to them."""
    guest = field.guest
    guest.run(f"chgrp root {CAP} && chmod 644 {CAP}").must()
    expect(_owner(field) == "root:root 644", f"the file is {_owner(field)}")
    event = ["udevadm", "trigger", "--action=online", "--subsystem-match=cpu"]
    guest.run([*event, "--sysname-match=cpu1"]).must()
    guest.run(["udevadm", "settle"], timeout_s=90).must()
    expect(_owner(field) == _GRANTED, f"udev left {_owner(field)}")
    return f"{_GRANTED} again"


def cap_crash(field: Field) -> str:
    """stokerd dies without a word while it holds a cap: ExecStopPost gives it back."""
    guest = field.guest
    _heat(field, 60)
    held = hold(field)
    # Watched from inside, as the next start may set a new cap at once: the air is still hot.
    watch = guest.start(
        f"for i in $(seq 400); do c=$(cat {CAP}); [ $c = {FULL_KHZ} ] && exit 0; sleep 0.02; done; "
        "exit 1",
        timeout_s=60,
    )
    _heat(field, 50)
    _send(field, "KILL")
    guest.wait(watch).must("the cap is still there after stokerd was killed")
    return f"{held} kHz given back after SIGKILL"


def cap_broken(field: Field) -> str:
    """The configuration is wrong when stokerd dies: the cap must go all the same."""
    guest = field.guest
    _heat(field, 60)
    held = hold(field)
    _heat(field, 50)
    guest.write(_BROKEN, "[thermal\nnonsense")
    try:
        _send(field, "KILL")
        seconds = guest.until("no cap", lambda: cap_khz(field) == FULL_KHZ, timeout_s=60)
        guest.run(["stokerd", "--check-config"]).must_fail("a check of a wrong file")
    finally:
        guest.run(["rm", "-f", _BROKEN])
    field.ready()
    return f"{held} kHz given back within {seconds:.0f} s; serves again with a right file"


def cap_stale(field: Field) -> str:
    """Everything died at once, ExecStopPost too: the next start finds the journal."""
    guest = field.guest
    _heat(field, 60)
    held = hold(field)
    # Both of one moment: it may choose another cap between two looks.
    _send(field, "STOP")
    guest.run("cp -a /run/stoker /run/stoker.kept").must()
    journal_cap = cap_khz(field)
    _send(field, "CONT")
    guest.run(["systemctl", "stop", "stoker.service"], timeout_s=90).must()
    guest.run(
        f"cp -a /run/stoker.kept/*cap* /run/stoker/ && rm -rf /run/stoker.kept && "
        f"echo {journal_cap} >{CAP}"
    ).must()
    _heat(field, 50)
    guest.run(["systemctl", "start", "stoker.service"], timeout_s=90).must()
    guest.until("the cap is given back", lambda: cap_khz(field) == FULL_KHZ, timeout_s=60)
    guest.run(["systemctl", "stop", "stoker.service"], timeout_s=90).must()
    board_away(field)
    guest.run(["systemctl", "start", "stoker.service"], timeout_s=90).must()
    field.ready()
    return f"{held} kHz of a dead life given back at the next start"


STEPS: tuple[Step[Field], ...] = (
    Step("cap", "heat makes a cap in a bind-mounted cpufreq tree; stop restores", cap,
         ("small",), "second"),
    Step("cap-regrant", "a CPU comes online: its frequency limit is granted by udev", regrant,
         ("cap",), "second"),
    Step("cap-crash", "a killed stokerd leaves no cap behind", cap_crash, ("cap",), "second"),
    Step("cap-broken-config", "… nor with a wrong configuration", cap_broken, ("cap",), "second"),
    Step("cap-stale", "a stale journal is made good at the next start", cap_stale, ("cap",),
         "second"),
)  # fmt: skip
