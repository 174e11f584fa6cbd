"""Token pacing: rests between steps, so that they take a given part of the time.

What heat asks for where no clock can be slowed down. It knows no jobs and sleeps nowhere: the
loop asks how long it should wait, and hears the agent meanwhile.
"""

from __future__ import annotations

from typing import Final

LEAST_DUTY: Final = 0.02
LONGEST_REST_S: Final = 2.0  # however hot it is: a step now and then shows that we live


class Pacing:
    def __init__(self) -> None:
        self._duty = 1.0
        self._until_s = 0.0

    def set(self, duty: float) -> None:
        """The part of the time, 0..1, from the next step on."""
        self._duty = min(max(duty, LEAST_DUTY), 1.0)
        if self._duty == 1.0:
            self._until_s = 0.0

    def worked(self, began_s: float, ended_s: float) -> None:
        """A step took that time."""
        if self._duty < 1.0:
            rest_s = (ended_s - began_s) * (1.0 / self._duty - 1.0)
            self._until_s = ended_s + min(rest_s, LONGEST_REST_S)

    def rest_s(self, now_s: float) -> float:
        """So long no step is taken; 0 = go on."""
        return max(0.0, self._until_s - now_s)
