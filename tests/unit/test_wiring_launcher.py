"""Which way the runner is started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker import wiring
from stoker.config.schema import Config
from stoker.drivers import runner_unit
from stoker.drivers.runner_child import ChildLauncher


def _launcher(
    monkeypatch: pytest.MonkeyPatch, setting: str, *, service: bool, installed: bool, bus: str
) -> object:
    monkeypatch.setattr(runner_unit, "installed", lambda: installed)
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if service:
        monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    base = Config()
    config = replace(
        base,
        runner=replace(base.runner, launcher=setting),
        daemon=replace(base.daemon, bus=bus),
    )
    return wiring.runner_launcher(config)


@pytest.mark.parametrize(
    ("setting", "service", "installed", "bus", "unit"),
    [
        ("auto", True, True, "system", True),
        ("auto", False, True, "system", False),  # started by hand: nobody gave us a user
        ("auto", True, False, "system", False),
        ("auto", True, True, "session", False),  # a service of a person's own manager
        ("child", True, True, "system", False),
        ("systemd", False, False, "system", True),  # somebody knows better
    ],
)
def test_units_are_used_where_stokerd_is_the_packaged_service(
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    service: bool,
    installed: bool,
    bus: str,
    unit: bool,
) -> None:
    launcher = _launcher(monkeypatch, setting, service=service, installed=installed, bus=bus)
    wanted = runner_unit.UnitLauncher if unit else ChildLauncher
    assert isinstance(launcher, wanted)
