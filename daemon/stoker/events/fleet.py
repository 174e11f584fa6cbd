"""Values of the fleet client: what a broker reports, a command on record, the whole at a moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

RESULT, UPLOAD, TELEMETRY = "result", "upload", "telemetry"


@dataclass(frozen=True, slots=True)
class Login:
    """What one connection says of itself. ``will``: (topic, payload), retained by the broker."""

    client_id: str
    protocol: int  # 5 | 4 (which is MQTT 3.1.1)
    will: tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Connected:
    """``connection`` counts the attempts of this process; events of older ones are stale."""

    connection: int
    session_present: bool = False
    receive_maximum: int = 65_535
    maximum_packet: int = 0  # 0 = no limit told
    client_id: str = ""  # another than ours: the broker gave it


@dataclass(frozen=True, slots=True)
class Lost:
    """``cause``: network | dns | tls | clock | auth | protocol | silent | taken-over | closed |
    storage."""

    connection: int
    cause: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    connection: int
    topic: str
    payload: bytes
    retained: bool = False
    duplicate: bool = False
    token: int = 0  # to acknowledge it by; 0 = nothing to acknowledge


@dataclass(frozen=True, slots=True)
class Published:
    """The broker has answered a publish of ours; ``refused`` says why, "" = it took it."""

    connection: int
    token: int
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Subscribed:
    connection: int
    token: int
    refused: Mapping[str, str] = field(default_factory=dict)  # topic → why


BrokerEvent = Connected | Lost | Message | Published | Subscribed


@dataclass(frozen=True, slots=True)
class Record:
    """One command on record. Moments are seconds since 1970, as their issuer wrote them."""

    id: str
    command: str
    args: Mapping[str, object] = field(default_factory=dict)
    issuer: str = ""  # "" = the desired state asked for it
    sequence: int = 0
    issued_s: float = 0.0
    expires_s: float = 0.0
    state: str = "received"
    attempts: int = 0
    notes: Mapping[str, object] = field(default_factory=dict)  # what its resumption must know
    code: str = ""
    text: str = ""
    data: Mapping[str, object] = field(default_factory=dict)
    number: int = 0  # of its results, rising, so that nobody needs a clock to order them

    @property
    def over(self) -> bool:
        return self.state in FINAL


FINAL = ("succeeded", "failed", "rejected", "expired", "canceled")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message that waits in the outbox; its payload stays on the disk."""

    number: int
    kind: str  # result | upload | telemetry
    topic: str
    size_bytes: int
    made_s: float  # as the store counts ages


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """``state``: off | waiting | connecting | online."""

    state: str = "off"
    broker: str = ""
    device: str = ""
    protocol: int = 0
    session: int = 0
    since_s: float = 0.0  # wall clock, of the state
    problem_code: str = ""  # of the last lost connection
    problem_text: str = ""
    denied: tuple[str, ...] = ()  # topics that the broker refuses
    warnings: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    desired: Mapping[str, int] = field(default_factory=dict)  # audience → version accepted last
    own_update: bool = False  # outside its groups' campaigns
    stale: bool = False  # a desired state is past its expiry
    outbox: int = 0
    outbox_bytes: int = 0
    dropped: int = 0
    commands: int = 0  # answered since the start
    forged: int = 0  # messages that nobody trusted has signed, or that are damaged
    last_command: tuple[str, str, str] = ("", "", "")  # id, command, state
    certificate_expires: str = ""


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One step of a connection test. ``outcome``: ok | failed | skipped | unknown."""

    name: str
    outcome: str
    text: str
    hint: str = ""
