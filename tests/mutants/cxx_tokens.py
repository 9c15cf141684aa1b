"""Splits C++ and CUDA sources into tokens, as far as mutants need it.

Comments, strings, characters, preprocessor lines and white space are no tokens; strings stay as tokens of
the kind "string", so that neighbours of one are known. What is a comparison and what a template's bracket
is told by the spaces that .clang-format puts around binary operators (is_binary).
"""

import bisect
import dataclasses
import re

PATTERN = re.compile(
    r"""
    (?P<space>\s+|\\\n)
  | (?P<comment>//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/)
  | (?P<string>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"\w*
      |(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"\w*
      |(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9a-fA-F]|[\w.])*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<operator><<=|>>=|<=>|\.\.\.|->\*|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[][(){}<>;:,.?~!=+\-*/%&|^\#@$])
    """,
    re.VERBOSE | re.DOTALL)
DIRECTIVE = re.compile(r"[ \t]*#(?:[^\n\\/]|\\.|\\\n|/(?!\*)|/\*.*?\*/)*", re.DOTALL)
CLOSES = {"(": ")", "[": "]", "{": "}"}


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str  # word, number, string or operator
    text: str
    start: int
    end: int


class Source:
    """A file's text and tokens. Indices are of tokens unless a name says otherwise."""

    def __init__(self, text):
        self.text = text
        self.tokens = list(self._split())
        self._lines = [0] + [m.end() for m in re.finditer("\n", text)]
        self.partner, self.inside = self._match()

    def _split(self):
        at, line_begins = 0, True
        while at < len(self.text):
            if line_begins and (found := DIRECTIVE.match(self.text, at)):
                at = found.end()
                line_begins = False
                continue
            found = PATTERN.match(self.text, at)
            if not found:
                raise ValueError(f"no C++ at byte {at}: {self.text[at:at + 20]!r}")
            kind = found.lastgroup if found.lastgroup != "fence" else "string"
            if kind == "space":
                line_begins = line_begins or "\n" in found.group().replace("\\\n", "")
            elif kind != "comment":
                yield Token(kind, found.group(), at, found.end())
                line_begins = False
            at = found.end()

    def _match(self):
        """For each bracket the other one, and for each token the bracket around it (or None)."""
        partner, inside, open_ones = {}, [], []
        for i, token in enumerate(self.tokens):
            if token.text in CLOSES.values() and token.kind == "operator" and open_ones:
                first = open_ones.pop()
                partner[first], partner[i] = i, first
            inside.append(open_ones[-1] if open_ones else None)
            if token.text in CLOSES and token.kind == "operator":
                open_ones.append(i)
        return partner, inside

    def line_of(self, token):
        """Line numbers begin at 1."""
        return bisect.bisect_right(self._lines, token.start)

    def line_text(self, number):
        begin = self._lines[number - 1]
        end = self._lines[number] if number < len(self._lines) else len(self.text)
        return self.text[begin:end].rstrip("\n")

    def is_text(self, i, *texts):
        """Whether there is a token i and it is one of these words or operators."""
        return 0 <= i < len(self.tokens) and self.tokens[i].kind != "string" and self.tokens[i].text in texts

    def is_binary(self, i):
        """Whether operator i has a value before it and spaces on both sides, as binary operators are laid out."""
        if not 0 < i < len(self.tokens) - 1:
            return False
        token, before = self.tokens[i], self.tokens[i - 1]
        spaced = before.end < token.start and token.end < self.tokens[i + 1].start
        value = before.kind in ("word", "number") or before.text in (")", "]", "}")
        return spaced and value and before.text not in ("return", "operator", "case", "template", "else")

    def stops(self, i, stops):
        """Whether token i is one of stops; of what may be a sign or a type's bracket only the binary operator."""
        text = self.tokens[i].text
        return text in stops and (text not in ("+", "-", "*", "&", "<", ">") or self.is_binary(i))

    def skip(self, i, stops):
        """The first token at or after i, at the same depth, that stops or that closes what is around."""
        while i < len(self.tokens) and not self.stops(i, stops) and self.tokens[i].text not in CLOSES.values():
            i = self.partner.get(i, i) + 1
        return i

    def skip_back(self, i, stops):
        """The last token at or before i, at the same depth, that stops or that opens what is around; or -1."""
        while i >= 0 and not self.stops(i, stops) and self.tokens[i].text not in CLOSES:
            i = self.partner.get(i, i) - 1
        return i
