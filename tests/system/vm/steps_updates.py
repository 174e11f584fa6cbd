"""Steps: updates from a folder, as the package's user. Refused, kept, gone back, cut from power.

The bundles are bundles.py's; stokerctl and the client library speak to stokerd, which lets
stoker-apply@ apply. After each cut the device must serve the old set or the new one.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tests.system.vm.bundles import NAME
from tests.system.vm.field import ANSWER_S, READY_S, USER, Field
from tests.system.vm.guest import Done
from tests.system.vm.report import Miss, expect
from tests.system.vm.steps_models import MEDIA, put
from tests.system.vm.table import Step

ADMIN: Final = "other"  # a member of stoker-admin; no more rights than that
_REST_S: Final = 240.0
_DROP_IN: Final = "/etc/stoker/stoker.d/60-updates.toml"
_SETTINGS: Final = """\
[runner]
heartbeat_timeout_s = 60.0
[swap]
probe_timeout_s = 300.0
[updates]
retry_s = 2.0
"""
_CLEAN: Final = f"""\
systemctl stop stoker.service
rm -rf /var/lib/stoker/ota {_DROP_IN} /etc/stoker/trust.json
systemctl start stoker.service
"""
# Does something as an administrator's program would, then waits for a phase; prints all that it
# saw, from before the deed on: a deed that is done at the first look is seen, too.
_WATCH: Final = """\
import sys, time
from stoker_client import Stoker
deed, target, phase = sys.argv[1:]
updates = Stoker().updates
seen, until = [updates.facts()["State"]], time.monotonic() + 200
if deed:
    getattr(updates, deed)(target)
while time.monotonic() < until:
    now = updates.facts()["State"]
    if seen[-1:] != [now]:
        seen.append(now)
    if now == phase or (now == "idle" and len(seen) > 1):
        break
print(*seen)
"""


def _facts(field: Field) -> dict[str, Any]:
    told = field.guest.text(["stokerctl", "--json", "update", "list"], user=USER)
    found: dict[str, Any] = json.loads(told)
    return found


def _install(field: Field, bundle: str, user: str = ADMIN) -> Done:
    command = ["stokerctl", "--json", "update", "install", f"{MEDIA}/{bundle}"]
    return field.guest.run(command, user=user, timeout_s=_REST_S)


def _refused(done: Done, code: str) -> str:
    done.must_fail(f"an installation that must end with {code}")
    try:
        error = json.loads(done.out)["error"]
    except (ValueError, KeyError) as fault:
        raise Miss(f"stokerctl told no error: {done.out!r} {done.err!r}") from fault
    expect(error["code"] == code, f"it ended with {error}, not with {code}")
    return str(error["message"])


def serves(field: Field, *numbers: int) -> str:
    """It answers a person without rights with one of these sets (0 = the package's own)."""
    field.ready()
    field.answers()
    paths: list[str] = []

    def one_is_ready() -> bool:
        """Not for a moment, while an update that goes on by itself tries its set."""
        told = field.guest.text(["stokerctl", "--json", "models"], user=USER)
        paths[:] = [model["path"] for model in json.loads(told) if model["state"] == "ready"]
        return len(paths) == 1

    field.guest.until("one model is ready", one_is_ready, timeout_s=READY_S)
    found = [number for number in numbers if _is_of(field, paths[0], number)]
    now = _facts(field)
    expect(bool(found), f"{paths[0]} serves, of none of the sets {numbers}; {now}")
    return f"set {found[0]}"


def _is_of(field: Field, path: str, number: int) -> bool:
    """Whether this file is the set's model: sets share what they have in common."""
    if not number:
        return path.endswith(f"{NAME}.gguf")
    member = f"/var/lib/stoker/ota/generations/{number}/{NAME}"
    same = ["test", path, "-ef", member]
    return field.guest.run(same).code == 0


def _idle(field: Field) -> float:
    return field.guest.until(
        "the update's end", lambda: field.told("Update1", "State") == "idle", timeout_s=_REST_S
    )


def at_rest(field: Field, current: int) -> float:
    """Until nothing is under way; the set that is committed then."""
    seconds = _idle(field)
    now = _facts(field)
    expect(now["current"] == current, f"set {now['current']} is committed, not {current}: {now}")
    serves(field, current)
    return seconds


def _cut(field: Field, phase: str, deed: str, target: str, *may_serve: int) -> str:
    """Cuts the power in the phase; the next boot serves by itself, with one of these sets."""
    watch = field.guest.start(
        ["/usr/bin/python3", "-c", _WATCH, deed, target, phase], user=ADMIN, timeout_s=ANSWER_S + 90
    )
    seen = field.guest.wait(watch).must(f"watch for {phase}").text.split()
    field.machine.cut_power()
    late = phase == "committed" and "idle" in seen  # it lasts a moment: the cut came just after it
    expect(phase in seen or late, f"the update was never seen {phase}: {seen}")
    field.machine.boot()
    serving = serves(field, *may_serve)
    left = field.guest.run("ls -A /run/stoker/apply-*").text
    return f"{seen[-1]} → {serving}" + (f" (left: {left})" if left else "")


def prepare_model(field: Field) -> None:
    """The small model, an operator to trust, an administrator; for the next start."""
    guest = field.guest
    guest.run(["usermod", "-a", "-G", "stoker-admin", ADMIN]).must()
    put(field)
    guest.run(["install", "-m", "644", f"{MEDIA}/trust.json", "/etc/stoker/trust.json"]).must()
    field.write_setting(_DROP_IN, _SETTINGS)


def tidy(field: Field) -> None:
    """Nothing installed: the model that was there before."""
    field.guest.run(_CLEAN, timeout_s=120).must()
    serves(field, 0)


def update(field: Field) -> str:
    """stokerd as user stoker takes a signed delta from a disk that an administrator shows it."""
    guest = field.guest
    prepare_model(field)
    field.restart()
    serves(field, 0)
    refused = _install(field, "bundle-1", user=USER).must_fail("an installation by anyone")
    forged = _refused(_install(field, "forged"), "bad-signature")
    expect(_facts(field)["current"] == 0, "a refused bundle changed the set")
    done = _install(field, "bundle-1").must("install bundle-1")
    at_rest(field, 1)
    units = guest.text("journalctl -b --no-pager -o json -u 'stoker-apply@*' | wc -l")
    expect(int(units) > 0, "no stoker-apply@ unit ran: who applied the delta?")
    failed = guest.text("systemctl list-units --failed --plain --no-legend 'stoker*'")
    expect(not failed, f"failed units after an update: {failed}")
    field.notes["forged"] = forged
    return f"{done.seconds:.0f} s; anyone: {(refused.err or refused.out).strip()[:60]!r}; {forged}"


def update_cuts(field: Field) -> str:
    """One update, cut while it is fetched, while it is tried, and as it is committed."""
    said = [_cut(field, "fetching", "install", f"{MEDIA}/bundle-2", 1, 2)]
    # It is gone on with from here, by itself, until it waits for a word.
    said.append(_cut(field, "testing", "", "", 1, 2))
    field.guest.until(
        "the trial's end", lambda: _waits_for_a_word(field), timeout_s=_REST_S, every_s=1
    )
    said.append(_cut(field, "committed", "confirm", NAME, 1, 2))
    seconds = at_rest(field, 2)
    return f"{'; '.join(said)}; at rest after {seconds:.0f} s"


def _waits_for_a_word(field: Field) -> bool:
    """Confirm works from then on; before, it is an error and changes nothing."""
    last = field.guest.text("tail -c 4096 /var/lib/stoker/ota/state.json")
    return '"healthy":true' in last.replace(" ", "").replace("\\", "")


def update_cut_applying(field: Field) -> str:
    said = _cut(field, "applying", "install", f"{MEDIA}/bundle-3", 2, 3)
    return f"{said}; at rest after {at_rest(field, 3):.0f} s"


def update_cut_verifying(field: Field) -> str:
    said = _cut(field, "verifying", "install", f"{MEDIA}/bundle-4", 3, 4)
    return f"{said}; at rest after {at_rest(field, 4):.0f} s"


def update_killed_daemon(field: Field) -> str:
    """stokerd dies while its unit applies: the unit goes with it, and the work is gone on with."""
    guest = field.guest
    daemon = field.daemon_pid()
    watch = guest.start(
        ["/usr/bin/python3", "-c", _WATCH, "install", f"{MEDIA}/bundle-5", "applying"], user=ADMIN,
        timeout_s=ANSWER_S,
    )  # fmt: skip
    guest.wait(watch).must("watch for applying")
    guest.run(["kill", "-KILL", str(daemon)]).must()
    guest.until("another stokerd", lambda: field.daemon_pid() not in {0, daemon}, timeout_s=60)
    _idle(field)
    last = json.loads(guest.text("stokerctl --json update history --limit 3", user=USER))
    expect(any(row["code"] == "unhealthy" for row in last), f"bundle-5 was not found ill: {last}")
    expect(_facts(field)["current"] == 4, f"the sick set is in use: {_facts(field)}")
    serving = serves(field, 4)
    again = _refused(_install(field, "bundle-5"), "unhealthy")
    return f"gone on with, found ill, {serving} serves; again: {again}"


def update_end(field: Field) -> str:
    """Back to the set before, and to none."""
    field.guest.run(
        ["stokerctl", "update", "rollback"], user=ADMIN, timeout_s=_REST_S
    ).must("roll back")  # fmt: skip
    at_rest(field, 3)
    tidy(field)
    return "set 3 served again; then the model that was there before"


STEPS: tuple[Step[Field], ...] = (
    Step("update", "a signed delta from a folder is kept; forged or asked by anyone it is refused",
         update, ("small",), "second"),
    Step("update-cuts", "power cuts: fetching, testing, committing; old or new serves",
         update_cuts, ("update",), "second"),
    Step("update-cut-apply", "… applying", update_cut_applying, ("update-cuts",), "second"),
    Step("update-cut-verify", "… verifying", update_cut_verifying, ("update-cut-apply",),
         "second"),
    Step("update-sick", "stokerd killed while applying; a set that fails its probes goes back",
         update_killed_daemon, ("update-cut-verify",), "second"),
    Step("update-rollback", "an administrator goes back", update_end, ("update",), "second"),
)  # fmt: skip
