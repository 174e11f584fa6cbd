"""What the steps share: the machine, the packages, and questions to the service in the guest.

Every question goes through the guest's own programs, as a person or a program there would ask.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.system.vm.guest import Done, Guest
from tests.system.vm.machine import Machine
from tests.system.vm.packages import Packages
from tests.system.vm.report import expect

AGENT = ("org.stoker.Agent1", "/org/stoker/Agent1")
USER = "tester"  # a person without any right
READY_S = 150.0  # loading the model on an emulated processor beside other work
ANSWER_S = 150


@dataclass(slots=True)
class Field:
    machine: Machine
    packages: Packages
    notes: dict[str, str] = field(default_factory=dict)  # what one step leaves for another

    @property
    def guest(self) -> Guest:
        return self.machine.guest

    def call(self, interface: str, method: str, *words: str, user: str = USER) -> Done:
        """A method of the agent through busctl."""
        return self.guest.run(
            ["busctl", "--json=short", f"--timeout={ANSWER_S}", "call", *AGENT,
             f"org.stoker.{interface}", method, *words],
            user=user, timeout_s=ANSWER_S + 30,
        )  # fmt: skip

    def ask(self, question: str = "Name a colour.") -> Done:
        return self.call("Inference1", "Ask", "s", question)

    def answers(self, question: str = "Name a colour.") -> Done:
        """Asks as a person without rights and sees to it that words come back."""
        done = self.ask(question).must("ask over D-Bus")
        expect(bool(json.loads(done.out)["data"][0].strip()), "the answer is empty")
        return done

    def status(self) -> dict[str, Any]:
        done = self.call("Agent1", "Status").must("ask for the status")
        return {key: value["data"] for key, value in json.loads(done.out)["data"][0].items()}

    def thermal(self) -> dict[str, Any]:
        """Properties of Thermal1."""
        done = self.guest.run(
            ["busctl", "--json=short", "call", *AGENT, "org.freedesktop.DBus.Properties", "GetAll",
             "s", "org.stoker.Thermal1"],
            user=USER,
        ).must("ask for the heat")  # fmt: skip
        return {key: value["data"] for key, value in json.loads(done.out)["data"][0].items()}

    def told(self, interface: str, name: str) -> Any:
        """A property, None while nobody answers on the bus: cheap to look at again and again."""
        done = self.guest.run(
            ["busctl", "--json=short", "get-property", *AGENT, f"org.stoker.{interface}", name],
            user=USER,
        )
        return json.loads(done.out)["data"] if done.code == 0 else None

    def state(self) -> str:
        """State of the model, "" while nobody answers."""
        return str(self.told("Inference1", "State") or "")

    def ready(self, timeout_s: float = READY_S) -> float:
        return self.guest.until(
            "the model is ready", lambda: self.state() == "ready", timeout_s=timeout_s
        )

    def unit(self, unit: str, name: str) -> str:
        return self.guest.text(["systemctl", "show", "-P", name, unit])

    def runner_unit(self) -> str:
        """The one instance that runs."""
        listed = self.guest.text(
            "systemctl list-units --plain --no-legend --state=active 'stoker-runner@*'"
        )
        units = [line.split()[0] for line in listed.splitlines()]
        expect(len(units) == 1, f"runner units that are active: {units or 'none'}")
        return units[0]

    def runner_pid(self) -> int:
        return int(self.unit(self.runner_unit(), "MainPID"))

    def daemon_pid(self) -> int:
        return int(self.unit("stoker.service", "MainPID"))

    def apt(self, *words: str, timeout_s: float = 400) -> Done:
        """apt-get as root; never asks, keeps the administrator's files."""
        return self.guest.run(
            ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y",
             "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold",
             *words],
            timeout_s=timeout_s,
        )  # fmt: skip

    def write_setting(self, path: str, text: str) -> None:
        """A file of the configuration that stokerd may read, for the next start or reload."""
        self.guest.write(path, text)
        self.guest.run(["chmod", "644", path]).must()

    @contextlib.contextmanager
    def setting(self, name: str, text: str) -> Iterator[None]:
        """A drop-in of the configuration for a while; the service starts with it, then without."""
        path = f"/etc/stoker/stoker.d/{name}.toml"
        with contextlib.ExitStack() as after:
            after.callback(self.restart)
            after.callback(lambda: self.guest.run(["rm", "-f", path]).must())
            self.write_setting(path, text)
            self.restart()
            yield

    def restart(self) -> None:
        self.guest.run(["systemctl", "restart", "stoker.service"], timeout_s=120).must()

    def process(self, pid: int, name: str) -> str:
        """A field of /proc/PID/status."""
        return self.guest.text(["sed", "-n", f"s/^{name}:[[:space:]]*//p", f"/proc/{pid}/status"])
