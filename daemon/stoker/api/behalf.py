"""Whose request it is when the gateway asks: ``on_behalf_of_uid`` in the options of a call.

Everywhere else identity is the bus's UID and nothing a caller says. Pure: who the gateway
is, an Authority knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from stoker.errors import InvalidRequest, NotAuthorized
from stoker.events.inference import Owner
from stoker.ports.system import Authority

KEY: Final = "on_behalf_of_uid"
MAX_UID: Final = 0xFFFFFFFE  # above it is (uid_t) -1, which is nobody


def speaker(
    owner: Owner, options: Mapping[str, object], authority: Authority
) -> tuple[Owner, Mapping[str, object]]:
    """The owner of the request, and the options without the key.

    The unique name stays the gateway's: its jobs end when it leaves. Raises NotAuthorized
    for every user but the gateway's, and InvalidRequest for what is no user ID.
    """
    if KEY not in options:
        return owner, options
    if not authority.speaks_for_others(owner.uid):
        raise NotAuthorized(
            f"cannot accept request: {KEY} is not for user {owner.uid}",
            hint="only the user named by gateway_user in [access] may say it",
        )
    uid = options[KEY]
    if isinstance(uid, bool) or not isinstance(uid, int) or not 0 <= uid <= MAX_UID:
        raise InvalidRequest(
            f"cannot read request: options.{KEY}: {uid!r} is no user ID",
            details={"path": f"options.{KEY}"},
        )
    rest = {key: value for key, value in options.items() if key != KEY}
    return replace(owner, uid=uid), rest
