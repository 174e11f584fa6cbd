"""Grammars in GBNF: what they accept, and that none of them can hurt the runner."""

from __future__ import annotations

import time

import pytest
from tests.fakes.hostile_shapes import HOSTILE

from stoker.errors import GrammarInvalid
from stoker.runner import gbnf, matcher
from stoker.runner.constraint import Constraint

_ARITHMETIC = r"""
root  ::= (expr "=" ws term "\n")+   # a comment
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""


def accepts(grammar: str, text: str) -> bool:
    follow = matcher.Matcher(gbnf.parse(grammar))
    point = follow.feed(follow.start, text.encode())
    return point is not None and point.complete


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= "a" ("b" | "c")* "d"?', ["a", "abcb", "abd"], ["", "b", "add", "ax"]),
        ("root ::= [a-z]{2,3}", ["ab", "abc"], ["a", "abcd", "AB"]),
        ("root ::= [0-9]{2,} [^a-z]{1}", ["12!", "123X"], ["1!", "12a"]),
        ('root ::= ("ab"){2}', ["abab"], ["ab", "ababab"]),
        ('root ::= "☃" . "\\u00e9" "\\x41" "\\U0001F600"', ["☃\néA😀"], ["☃éA😀"]),
        ('root ::= "" | "\\"" [\\]\\-\\\\^] "\\""', ["", '"]"', '"-"', '"\\"', '"^"'], ["a"]),
        ('root ::= a\n  | b\na ::= "x"\nb ::= "y"', ["x", "y"], ["xy"]),
        (_ARITHMETIC, ["a+1=2\n", "(a*(b-c)) =7 \nx= 1\n"], ["a+=2\n", "a=2"]),
        ('root ::= (("a"?))* "b"', ["b", "aaab"], ["a", "bb"]),
        ("root ::= [あ-ん]+", ["ひらがな"], ["カ", ""]),
    ],
)
def test_a_grammar_accepts_its_texts_and_no_others(
    grammar: str, good: list[str], bad: list[str]
) -> None:
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


_CHAIN = "root ::= a0\n" + "".join(f"a{n} ::= a{n + 1}\n" for n in range(3000)) + 'a3000 ::= "x"'


@pytest.mark.parametrize("grammar", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_grammar_is_a_typed_error_in_time(grammar: str) -> None:
    start = time.process_time()
    with pytest.raises(GrammarInvalid):
        matcher.Matcher(gbnf.parse(grammar))
    assert time.process_time() - start < 2.0


def test_the_line_of_a_mistake_is_told() -> None:
    with pytest.raises(GrammarInvalid) as caught:
        gbnf.parse('root ::= a\n# fine\na ::= "x" |\n   [z-a]\n')
    assert "line 4" in caught.value.message


def test_a_long_chain_of_rules_needs_no_recursion() -> None:
    assert accepts(_CHAIN, "x")


def test_a_grammar_that_opens_ever_more_ways_is_stopped() -> None:
    """Each space doubles the ways; a matcher that keeps them all needs all memory."""
    follow = matcher.Matcher(gbnf.parse('root ::= x\nx ::= " " x "b" | " " x "c" | " "'))
    with pytest.raises(GrammarInvalid, match="ways"):
        follow.feed(follow.start, b" " * 60)


def test_endless_nesting_is_stopped_at_a_bound() -> None:
    follow = matcher.Matcher(gbnf.parse('root ::= x\nx ::= "(" x ")" | "."'))
    with pytest.raises(GrammarInvalid, match="deep"):
        follow.feed(follow.start, b"(" * (matcher.MAX_NODES + 10))


def _constraint(grammar: str, pieces: dict[int, bytes | None]) -> Constraint:
    printed = sorted((piece, token) for token, piece in pieces.items() if piece)
    ends = [token for token, piece in pieces.items() if piece is None]
    listed = [piece for piece, _ in printed], [token for _, token in printed]
    return Constraint(gbnf.parse(grammar), pieces.__getitem__, lambda: listed, lambda: ends)


def test_the_walk_finds_exactly_the_tokens_that_fit() -> None:
    words = ["a", "ab", "abc", "b", "ba", "☃", "é", "\xff", "zz", "abab"]
    pieces: dict[int, bytes | None] = {n: word.encode() for n, word in enumerate(words)}
    pieces |= {90: None, 91: b"", 92: "☃".encode()[:1], 93: "☃".encode()[1:], 94: b"\xff\xff"}
    for grammar in ('root ::= "ab"* "☃"', "root ::= [^a]*", "root ::= .*", 'root ::= "é"?'):
        found = _constraint(grammar, pieces)
        assert sorted(found.all_allowed()) == [t for t in sorted(pieces) if found.allows(t)]


def test_a_character_may_come_in_parts_but_not_another_one() -> None:
    snow = "☃".encode()
    found = _constraint('root ::= "☃"', {0: snow[:1], 1: snow[1:], 2: b"\x82\x80", 3: None})
    assert found.accept(0)
    assert not found.accept(3)  # half a character is no end
    assert not found.accept(2)  # U+2080 begins with the same byte
    assert found.accept(1)
    assert found.exhausted
    assert found.accept(3)


@pytest.mark.parametrize(
    "begin", [b"\xe0", b"\xf0", b"\xed\xa0", b"\xe0\x81", b"\xc0", b"\xff", b"\x80"]
)
def test_bytes_that_begin_no_allowed_character_are_refused(begin: bytes) -> None:
    """A long form of "y", halves of surrogate pairs, and bytes that begin nothing."""
    assert not _constraint('root ::= "y"', {0: begin}).allows(0)
    if begin not in (b"\xe0", b"\xf0"):
        assert not _constraint("root ::= .*", {0: begin}).allows(0)
