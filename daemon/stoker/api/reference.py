"""docs/api.md out of the interface files: ``python -m stoker.api.reference > docs/api.md``.

The comments in the XML are the reference; this only arranges them. A test holds the page to it.
"""

from __future__ import annotations

import re
import sys
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Final

from stoker.api import contract, errormap

ORDER: Final[tuple[str, ...]] = (
    contract.AGENT, contract.INFERENCE, contract.JOB, contract.SESSION, contract.THERMAL,
    contract.REALTIME, contract.UPDATE, contract.UPDATE_JOB, contract.FLEET, contract.HISTORY,
)  # fmt: skip
_HEAD: Final = """\
# D-Bus API

Bus name `org.stoker.Agent1` on the system bus, object `/org/stoker/Agent1`. In a checkout
`source .venv/bin/activate` comes before commands, and `make run` has a bus of its own: it prints
how a second terminal finds it (see the [README](../README.md#ask-over-d-bus)). Generated from
`daemon/stoker/api/interfaces/*.xml` by `python -m stoker.api.reference`; `busctl introspect` and
every binding generator can read the same. Types are D-Bus signatures. Interfaces only grow: new
methods, new keys, new errors; none goes or changes its meaning while the name ends in 1.
"""
_ERRORS: Final = """\
## Errors

Every error has a name `org.stoker.Error.NAME`; its message is `cannot <verb> <object>: <reason>`,
a hint stands in the next line. REST answers with the status, `stokerctl` exits with the number.

| D-Bus name | code | exit status | HTTP status |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The whole page, as Markdown."""
    known = [name for name in ORDER if name in contract.INTERFACES]
    known += [name for name in contract.INTERFACES if name not in ORDER]
    parts = [_HEAD, *(_interface(name) for name in known), _errors()]
    return "\n".join(parts)


def _interface(name: str) -> str:
    keeping = ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    tree = ET.fromstring(contract.xml(name), keeping)
    (found,) = tree.iter("interface")
    blocks: list[tuple[list[str], str]] = []
    words: list[str] = []
    for item in found:
        if _is_comment(item):
            words.append(_plain(item.text or ""))
        elif item.tag in ("method", "signal", "property"):
            title, said = _member(item, words)
            if said or not blocks:
                blocks.append(([title], said))
            else:  # what was said before is said of it too
                blocks[-1][0].append(title)
            words = []
    lines = [f"## {name}", "", *_preface(contract.xml(name))]
    for titles, said in blocks:
        lines += [*titles, "", *textwrap.wrap(said, 116), ""]
    return "\n".join(lines)


def _preface(text: str) -> Iterator[str]:
    """The comment before the interface: what it is for."""
    before = text.partition("<interface")[0]
    for words in re.findall(r"<!--(.*?)-->", before, re.DOTALL):
        yield from (*textwrap.wrap(_plain(words), 116), "")


def _member(item: ET.Element, words: list[str]) -> tuple[str, str]:
    name, kind = item.get("name", ""), str(item.tag)
    if kind == "property":
        changes = "".join(
            f", {note.get('value')} on change" for note in item.iter("annotation")
            if "EmitsChangedSignal" in note.get("name", "") and note.get("value") == "const"
        ).replace("const on change", "constant")  # fmt: skip
        title = f"### {name}: property `{item.get('type')}`, {item.get('access')}{changes}"
    else:
        title = f"### {name}({_arguments(item, 'in')}){_result(item)}: {kind}"
    said = " ".join([*words, *(_plain(c.text or "") for c in item if _is_comment(c))])
    said = re.sub(rf"^{re.escape(name)}:?\s+", "", said)
    said = (said[:1].upper() + said[1:]).replace("<", "\\<")
    return title, said


def _arguments(item: ET.Element, way: str) -> str:
    default = "in" if item.tag == "method" else "out"
    found = [arg for arg in item.iter("arg") if arg.get("direction", default) == way]
    if item.tag == "signal" and way == "in":
        found = list(item.iter("arg"))
    return ", ".join(f"{arg.get('name')} `{arg.get('type')}`" for arg in found)


def _result(item: ET.Element) -> str:
    out = _arguments(item, "out") if item.tag == "method" else ""
    return f" → {out}" if out else ""


def _errors() -> str:
    rows = (
        f"| `{row.dbus_name}` | `{row.code}` | {row.exit_status} | {row.http_status} |\n"
        for row in errormap.ROWS
    )
    return _ERRORS + "".join(rows)


def _is_comment(item: ET.Element) -> bool:
    """A comment's tag is the function that made it."""
    return callable(item.tag)


def _plain(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.stdout.write(page())
