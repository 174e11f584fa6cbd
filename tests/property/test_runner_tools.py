"""Tool calls in a stream: cuts never matter, and text without calls passes as it is."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from stoker.runner.tool_forms import FORMS, HERMES, MARKS, TAGS, Form, around
from stoker.runner.tool_stream import ToolStream

forms = st.sampled_from(FORMS)
_values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
_arguments = st.dictionaries(st.text(max_size=4), _values, max_size=3)
_TAGS = ("<function=f>", "</function>", "<parameter=a>\n", "\n</parameter>", '{"name": "f')
_pieces = st.lists(
    st.sampled_from([*MARKS, *_TAGS, "<tool", "<｜", "{", "}", "\n", " ", '"', "</", "a", "é", ";"])
    | st.text(max_size=4)
    | _arguments.map(lambda found: json.dumps({"name": "f", "arguments": found})),
    max_size=12,
)


def _run(form: Form, parts: list[str]) -> tuple[str, list[tuple[str, str]]]:
    ids = itertools.count()
    stream = ToolStream(form, {"f": {}}, lambda: str(next(ids)))
    text = "".join(map(stream.feed, parts)) + stream.finish()
    return text, [(call.name, call.arguments) for call in stream.take()]


@given(forms, _pieces, st.data())
def test_any_cut_gives_the_same_text_and_calls(
    form: Form, pieces: list[str], data: st.DataObject
) -> None:
    whole = "".join(pieces)
    at = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    parts = [whole[a:b] for a, b in itertools.pairwise([0, *at, len(whole)])]
    assert _run(form, parts) == _run(form, [whole]) == _run(form, list(whole))


@given(forms, st.text())
def test_text_without_marks_passes_unchanged(form: Form, text: str) -> None:
    if form.start not in text and not text.lstrip().startswith("{"):
        assert _run(form, [text]) == (text, [])


@given(_arguments, st.text(alphabet="abc .\n", max_size=10))
def test_what_is_written_as_a_call_is_read_as_one(arguments: dict[str, object], head: str) -> None:
    body = json.dumps({"name": "f", "arguments": arguments}, ensure_ascii=False)
    text, calls = _run(HERMES, [f"{head}<tool_call>\n{body}\n</tool_call>"])
    assert text == head
    assert [(name, json.loads(given)) for name, given in calls] == [("f", arguments)]


@given(
    st.dictionaries(st.text(alphabet="ab_1", min_size=1), st.text(), max_size=3),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_texts_in_tags_come_back_as_they_were_written(
    values: dict[str, str], at: list[int]
) -> None:
    if any("</" in text or "<parameter=" in text for text in values.values()):
        return
    head, tail = around(TAGS, "f")
    parts = [f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in values.items()]
    whole = f"{head}{''.join(parts)}{tail}"
    schema = {"properties": {key: {"type": "string"} for key in values}}
    stream = ToolStream(TAGS, {"f": schema}, lambda: "id")
    cuts = [0, *sorted(at), len(whole)]
    text = "".join(stream.feed(whole[a:b]) for a, b in itertools.pairwise(cuts)) + stream.finish()
    assert text == ""
    assert [json.loads(call.arguments) for call in stream.take()] == [values]
