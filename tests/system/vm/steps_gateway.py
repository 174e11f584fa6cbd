"""Steps: the REST door, as a person meets it. Over TCP, over the unix socket, its unit."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.system.vm.field import ANSWER_S, USER, Field
from tests.system.vm.guest import Done
from tests.system.vm.report import Miss, expect
from tests.system.vm.table import Step

WORST = 1.2
URL = "http://127.0.0.1:8470"
SOCKET = "/run/stoker/gateway.sock"
SERVICE, SOCKETS = "stoker-gateway.service", "stoker-gateway.socket"

# Not every image has curl: Python's own client does the same.
_CLIENT = """\
import http.client, json, socket, sys
path, body, unix = sys.argv[1], sys.argv[2], sys.argv[3]
con = http.client.HTTPConnection("127.0.0.1", 8470, timeout=SECONDS)
if unix:
    con.sock = socket.socket(socket.AF_UNIX)
    con.sock.settimeout(SECONDS)
    con.sock.connect(unix)
host = sys.argv[4] if len(sys.argv) > 4 else "localhost"
headers = {"Content-Type": "application/json", "Host": host}
con.request("POST" if body else "GET", path, body or None, headers)
got = con.getresponse()
sys.stdout.write(json.dumps({"status": got.status, "type": got.getheader("content-type"),
                             "body": got.read().decode()}))
""".replace("SECONDS", str(ANSWER_S))


def _ask(field: Field, path: str, body: Any = None, *, unix: bool = False, host: str = "",
         user: str = USER) -> dict[str, Any]:  # fmt: skip
    sent = json.dumps(body) if body is not None else ""
    words = ["/usr/bin/python3", "-", path, sent, SOCKET if unix else ""]
    done: Done = field.guest.run(
        [*words, *([host] if host else [])], user=user, stdin=_CLIENT, timeout_s=ANSWER_S + 30
    ).must(f"ask {path}")
    found: dict[str, Any] = json.loads(done.out)
    return found


def _chat(words: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": words}], "max_tokens": 3, **more}


def sockets(field: Field) -> str:
    """Installed, listening, and no process until somebody comes."""
    expect(field.unit(SOCKETS, "ActiveState") == "active", f"{SOCKETS} is not active")
    before = field.unit(SERVICE, "ActiveState")
    model = json.loads(_ask(field, "/v1/models")["body"])["data"][0]["id"]
    expect(field.unit(SERVICE, "ActiveState") == "active", f"{SERVICE} was not started")
    user = field.guest.text(["stat", "-c", "%U", f"/proc/{field.unit(SERVICE, 'MainPID')}"])
    expect(user == "stoker-gateway", f"the gateway runs as {user}")
    return f"{before} before the first request, then {user} names model {model}"


def tcp(field: Field) -> str:
    """A whole answer, a stream, and names that are not ours."""
    reply = _ask(field, "/v1/chat/completions", _chat("Name a colour."))
    expect(reply["status"] == 200, f"{reply['status']}: {reply['body']}")
    text = json.loads(reply["body"])["choices"][0]["message"]["content"]
    expect(bool(text.strip()), "the answer is empty")
    stream = _ask(field, "/v1/chat/completions", _chat("Name a tree.", stream=True))
    expect(
        stream["body"].endswith("data: [DONE]\n\n"), f"the stream ended {stream['body'][-80:]!r}"
    )
    rebound = _ask(field, "/v1/models", host="evil.example")
    expect(rebound["status"] == 421, f"another Host was answered with {rebound['status']}")
    return f"{text!r}; {stream['body'].count('data: ')} events; a rebound name was refused"


def unix(field: Field) -> str:
    """By the unix socket a person's own class and quota hold; nobody else may say whose."""
    limits = "/etc/stoker/stoker.d/90-gateway-test.toml"
    field.guest.write(limits, f'[users.{USER}]\nhighest_class = "background"\n')
    try:
        field.guest.run(["systemctl", "reload", "stoker.service"]).must()
        body = _chat("Name a bird.", service_tier="priority")
        field.guest.until(  # a reload takes a moment
            f"{USER} may not be interactive",
            lambda: _ask(field, "/v1/chat/completions", body, unix=True)["status"] == 403,
            timeout_s=60,
        )
        granted = _ask(field, "/v1/chat/completions", body)
        expect(granted["status"] == 200, f"the gateway's own class: {granted['body']}")
    finally:
        field.guest.run(["rm", "-f", limits])
        field.guest.run(["systemctl", "reload", "stoker.service"])
    reply = _ask(field, "/v1/chat/completions", _chat("Name a bird."), unix=True)
    expect(reply["status"] == 200, f"{reply['status']}: {reply['body']}")
    lie = field.call(
        "Inference1", "CreateJob", "a{sv}a{sv}", "1", "prompt", "s", "hi",
        "1", "on_behalf_of_uid", "u", "0",
    ).must_fail("a person who asks on behalf of root")  # fmt: skip
    expect("on_behalf_of_uid" in lie.err, f"refused with other words: {lie.err.strip()}")
    return "a person's limits hold there; only the gateway speaks for others"


def security(field: Field) -> str:
    """systemd's own judgement, no capabilities, no network of its own."""
    told = field.guest.text(["systemd-analyze", "security", "--no-pager", SERVICE], timeout_s=120)
    found = re.search(r"exposure level for .*: ([0-9.]+)", told)
    if found is None:
        raise Miss(f"systemd-analyze said nothing of {SERVICE}")
    worst = [row for row in told.splitlines() if row.startswith("✗")]
    expect(float(found[1]) <= WORST, f"{found[1]} > {WORST}\n" + "\n".join(worst))
    _ask(field, "/health")
    pid = int(field.unit(SERVICE, "MainPID"))
    for name in ("CapPrm", "CapEff", "CapBnd"):
        expect(int(field.process(pid, name), 16) == 0, f"{name} is not empty")
    own = field.guest.text(["readlink", f"/proc/{pid}/ns/net"])
    expect(own != field.guest.text(["readlink", "/proc/1/ns/net"]), "it sees the machine's network")
    return f"exposure {found[1]}"


def restart(field: Field) -> str:
    """The sockets and the service restart together, as an upgrade does it, and answer again."""
    _ask(field, "/health")
    field.guest.run(["systemctl", "restart", SOCKETS]).must()
    reply = _ask(field, "/health")
    expect(reply["status"] == 200, f"after a restart: {reply['body']}")
    field.guest.run(["systemctl", "kill", "--signal=KILL", SERVICE]).must()
    field.guest.until(
        "the gateway answers again", lambda: _ask(field, "/health")["status"] == 200, timeout_s=60
    )
    return "answers after a restart and after a kill"


STEPS: tuple[Step[Field], ...] = (
    Step("rest-sockets", "the REST door comes with its first client", sockets, ("configure",)),
    Step("rest-tcp", "a person asks over HTTP", tcp, ("rest-sockets",)),
    Step("rest-unix", "… over the unix socket, as itself", unix, ("rest-sockets",)),
    Step("rest-security", "systemd-analyze security: the gateway ≤ 1.2", security,
         ("rest-sockets",)),
    Step("rest-restart", "it survives restarts and kills", restart, ("rest-sockets",)),
)  # fmt: skip
