"""The interface XML files as GDBus knows them: the source of every signature.

It reads package data and nothing else. Names of the bus, paths and interfaces live here.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Final

from gi.repository import Gio

BUS_NAME: Final = "org.stoker.Agent1"
AGENT_PATH: Final = "/org/stoker/Agent1"
JOBS_PATH: Final = "/org/stoker/Agent1/jobs"
AGENT: Final = "org.stoker.Agent1"
INFERENCE: Final = "org.stoker.Inference1"
JOB: Final = "org.stoker.Job1"
SESSION: Final = "org.stoker.Session1"
SESSIONS_PATH: Final = "/org/stoker/Agent1/sessions"
THERMAL: Final = "org.stoker.Thermal1"
HISTORY: Final = "org.stoker.History1"
REALTIME: Final = "org.stoker.RealTime1"
UPDATE: Final = "org.stoker.Update1"
UPDATE_JOB: Final = "org.stoker.UpdateJob1"
FLEET: Final = "org.stoker.Fleet1"
UPDATES_PATH: Final = "/org/stoker/Agent1/updates"
PROPERTIES: Final = "org.freedesktop.DBus.Properties"
INTERFACES: Final = (
    AGENT, FLEET, HISTORY, INFERENCE, JOB, REALTIME, SESSION, THERMAL, UPDATE, UPDATE_JOB,
)  # fmt: skip


def xml(interface: str) -> str:
    """The commented XML of one interface, as shipped."""
    folder = resources.files("stoker.api") / "interfaces"
    return (folder / f"{interface}.xml").read_text(encoding="utf-8")


@cache
def interface_info(interface: str) -> Any:
    """Gio.DBusInterfaceInfo; kept for ever, since GDBus only borrows parts of it."""
    return Gio.DBusNodeInfo.new_for_xml(xml(interface)).lookup_interface(interface)


@cache
def out_signature(interface: str, method: str) -> str:
    """Signature of a method's reply as a tuple, e.g. ``(oh)``."""
    info = interface_info(interface).lookup_method(method)
    return "(" + "".join(arg.signature for arg in info.out_args) + ")"


@cache
def takes_descriptors(interface: str, method: str) -> tuple[int, ...]:
    """Which in arguments of a method are descriptors (``h``); none of the agent's nests them."""
    info = interface_info(interface).lookup_method(method)
    return tuple(at for at, arg in enumerate(info.in_args) if arg.signature == "h")


@cache
def property_signatures(interface: str) -> dict[str, str]:
    return {item.name: item.signature for item in interface_info(interface).properties}


def job_path(job: str) -> str:
    return f"{JOBS_PATH}/{job}"


def update_path(job: str) -> str:
    return f"{UPDATES_PATH}/{job}"


def session_path(session: str) -> str:
    return f"{SESSIONS_PATH}/{session}"
