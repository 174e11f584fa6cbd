"""Physical units as types, so that a wall in degrees is never compared with millidegrees.

sysfs speaks millidegrees and kilohertz; only drivers see those raw integers.
Names carry the unit too (``_c``, ``_s``, ``_khz``, ``_bytes``).
"""

from typing import NewType

Celsius = NewType("Celsius", float)
Kelvin = NewType("Kelvin", float)  # a temperature difference
Seconds = NewType("Seconds", float)
Watts = NewType("Watts", float)
KiloHertz = NewType("KiloHertz", int)
Bytes = NewType("Bytes", int)
Tokens = NewType("Tokens", int)
Fraction = NewType("Fraction", float)  # 0..1
