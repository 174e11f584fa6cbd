"""This device as Home Assistant discovers it: one retained document, and what its entities read.

Format: Home Assistant's MQTT "device discovery" and its ``update`` entity. Its buttons are
unsigned: "install" is consent for what a signed document waits with, never a command. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stoker.core import fleet_words

INSTALL: Final = b"install"
RESTART: Final = b"restart"
MAX_SUMMARY: Final = 255


@dataclass(frozen=True, slots=True)
class Places:
    """Topics of this device."""

    status: str
    state: str
    telemetry: str
    update: str  # what the update entity reads
    button: str  # what its buttons write


def discovery(device: str, version: str, places: Places, *, restart: bool) -> bytes:
    """For ``<prefix>/device/<id>/config``. Ids hold letters, digits, - and _ only."""
    parts: dict[str, object] = {
        "temperature": _sensor(device, places, "temperature_c", "Temperature", "temperature", "°C"),
        "headroom": _sensor(device, places, "headroom", "Thermal headroom", "", "", scale=100),
        "speed": _sensor(device, places, "tokens_per_s", "Speed", "", "tok/s"),
        "queue": _sensor(device, places, "queue_depth", "Queue", "", "jobs"),
        "model": {
            "p": "binary_sensor", "name": "Model serves", "unique_id": f"{device}_model",
            "device_class": "running", "state_topic": places.state,
            "value_template": "{{ 'ON' if value_json.model.state == 'ready' else 'OFF' }}",
        },
        "update": {
            "p": "update", "name": "Model", "unique_id": f"{device}_update",
            "state_topic": places.update, "command_topic": places.button,
            "payload_install": INSTALL.decode(), "device_class": "firmware",
        },
    }  # fmt: skip
    if restart:
        parts["restart"] = {
            "p": "button", "name": "Restart the model", "unique_id": f"{device}_restart",
            "command_topic": places.button, "payload_press": RESTART.decode(),
            "device_class": "restart",
        }  # fmt: skip
    return fleet_words.dump(
        {
            "dev": {"ids": [device], "name": device, "mf": "Stoker", "mdl": "language model node",
                    "sw": version},
            "o": {"name": "stoker", "sw": version},
            "availability": [{
                "topic": places.status,
                "value_template": "{{ 'online' if value_json.online else 'offline' }}",
            }],
            "cmps": parts,
            "qos": 1,
        }
    )  # fmt: skip


def update(installed: str, pending: Mapping[str, object] | None, *, busy: bool) -> bytes:
    """For the update entity. ``pending``: the deployment that waits for consent."""
    latest = installed
    if pending is not None:
        latest = label(str(pending.get("deployment", "")), pending.get("version", ""))
    return fleet_words.dump(
        {
            "installed_version": installed,
            "latest_version": latest,
            "title": "Model",
            "in_progress": busy,
            "release_summary": "" if pending is None else "Signed and waiting for your consent.",
        }
    )


def label(deployment: str, version: object) -> str:
    return f"{deployment} {version}".strip()[:MAX_SUMMARY] or "as packaged"


def _sensor(
    device: str, places: Places, key: str, name: str, kind: str, unit: str, scale: int = 1
) -> dict[str, object]:
    value = f"value_json.{key}" if scale == 1 else f"(value_json.{key} * {scale}) | round(1)"
    found: dict[str, object] = {
        "p": "sensor", "name": name, "unique_id": f"{device}_{key}", "state_class": "measurement",
        "state_topic": places.telemetry, "value_template": f"{{{{ {value} }}}}",
        "unit_of_measurement": unit or "%",
    }  # fmt: skip
    return found | ({"device_class": kind} if kind else {})
