"""All steps in the order in which they run. A later issue adds its module here."""

from __future__ import annotations

from tests.system.vm import (
    steps_faults,
    steps_fleet,
    steps_gateway,
    steps_heat,
    steps_life,
    steps_models,
    steps_realtime,
    steps_sandbox,
    steps_service,
    steps_sessions,
    steps_updates,
)
from tests.system.vm.field import Field
from tests.system.vm.table import Step

STEPS: tuple[Step[Field], ...] = (
    *steps_service.STEPS,
    *steps_models.STEPS,
    *steps_service.LATER,
    *steps_sandbox.STEPS,
    steps_models.SMALL,
    *steps_realtime.STEPS,
    *steps_gateway.STEPS,
    *steps_heat.STEPS,
    *steps_faults.STEPS,
    *steps_sessions.STEPS,
    *steps_updates.STEPS,
    *steps_fleet.STEPS,
    *steps_life.STEPS,
)
