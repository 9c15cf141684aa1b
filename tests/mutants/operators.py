"""What mutants there are: one function per operator, each a generator of (first byte, last byte, new text).

A mutant is one small error that a person may make: a sign, a bound, a constant, a term or a statement left out, a
condition the other way round. Text that only words an error (RONDO_CHECK, throw, static_assert) is passed over.

min and max are exchanged for each other rather than given their arguments the other way round, which changes
nothing. Increments, and what steps a for loop, are left alone: the loop would not end, and any test notices that.
"""

import dataclasses
import hashlib
import re

from cxx_tokens import Source

MESSAGES = re.compile(r"RONDO_\w+|static_assert|assert|fail|refuse|describe|throw_\w+|\w*Error|alignas|decltype|sizeof")
KEYWORDS = set("""alignas auto break case catch class const constexpr continue default delete do else enum explicit extern
    for friend goto if inline mutable namespace new operator private protected public return sizeof static static_assert
    static_cast struct switch template throw try typedef typename union using virtual volatile while""".split())
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "<<=", ">>="}
SUM_ENDS = {"+", "-", ";", ",", "<", ">", "<=", ">=", "==", "!=", "&&", "||", "?", ":", "=", "<<", ">>", "&", "|", "^"}
FACTOR_ENDS = SUM_ENDS | {"*", "/", "%"}
CONDITION_ENDS = {"&&", "||", ";", ",", "?", ":", "="}
OTHER_WORD = {"min": "max", "max": "min", "fmin": "fmax", "fmax": "fmin", "fminf": "fmaxf", "fmaxf": "fminf",
              "larger": "smaller", "smaller": "larger"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: str      # of the source, from the root
    name: str      # PATH:HASH:OPERATOR:N, the Nth of that operator among lines with that text
    line: int      # counted from 1
    start: int     # what is replaced, in characters
    end: int
    text: str      # what takes its place
    before: str    # the line as it is (the first, if the change takes several)
    after: str     # and as it becomes

    def apply(self, source_text):
        return source_text[:self.start] + self.text + source_text[self.end:]


def exchange(others, of_sums=False):
    """An operator that puts others[x] in place of each binary operator x."""
    def made(s):
        for i, t in enumerate(s.tokens):
            if t.text in others and s.is_binary(i):
                if of_sums and "string" in (s.tokens[i - 1].kind, s.tokens[i + 1].kind):
                    continue  # text is put together
                yield t.start, t.end, others[t.text]
    return made


def is_integer(t):
    return t.kind == "number" and re.fullmatch(r"(0|[1-9][0-9']*)([uUlLzZ]*)", t.text)


def constant(step):
    def made(s):
        for i, t in enumerate(s.tokens):
            if found := is_integer(t):
                if step < 0 and t.text == "1" and s.is_text(i - 1, "+", "-"):
                    continue  # dropped_term does the same
                value = int(found[1].replace("'", "")) + step
                if value >= 0:
                    yield t.start, t.end, f"{value}{found[2]}"
    return made


def factor(s):
    for t in s.tokens:
        found = t.kind == "number" and re.fullmatch(r"(0x[0-9a-fA-F.']+p[+-]?\d+|[\d.']+(?:[eE][+-]?\d+)?)([fFlL]?)", t.text)
        if not found or is_integer(t) or not re.search(r"[.eEpP]", found[1]):
            continue
        zero = not re.search(r"[1-9a-fA-F]", re.split("[eEpP]", found[1].removeprefix("0x"))[0])
        yield t.start, t.end, f"1.0{found[2]}" if zero else f"(1.5{found[2]} * {t.text})"


def dropped(operators, ends):
    """Leaves out an operator and what follows it, up to one of ends."""
    def made(s):
        for i, t in enumerate(s.tokens):
            if t.text in operators and s.is_binary(i):
                last = s.skip(i + 1, ends) - 1
                if last > i and "string" not in (s.tokens[i - 1].kind, s.tokens[i + 1].kind):
                    yield s.tokens[i - 1].end, s.tokens[last].end, ""
    return made


def dropped_first(s):
    """Leaves out the first term of a sum; of a difference the sign stays."""
    for i, t in enumerate(s.tokens):
        if t.text in ("+", "-") and s.is_binary(i) and "string" not in (s.tokens[i - 1].kind, s.tokens[i + 1].kind):
            before = s.skip_back(i - 1, SUM_ENDS | ASSIGNMENTS | {"return", "case"})
            if 0 <= before < i - 1 and not s.is_text(before, "+", "-"):  # else dropped_term does the same
                yield s.tokens[before + 1].start, t.start if t.text == "-" else s.tokens[i + 1].start, ""


def one_branch(s):
    """c ? a : b becomes a, and b."""
    for i in range(len(s.tokens)):
        if not s.is_text(i, "?"):
            continue
        begin = s.skip_back(i - 1, ASSIGNMENTS | {";", ",", "?", ":", "return", "<<"}) + 1
        middle = s.skip(i + 1, {":", "?", ";"})
        if s.is_text(middle, ":") and begin < i:
            end = s.skip(middle + 1, {":", "?", ";", ","})
            if end < len(s.tokens) and not s.is_text(end, "?"):
                for a, b in ((i + 1, middle), (middle + 1, end)):
                    yield s.tokens[begin].start, s.tokens[end - 1].end, s.text[s.tokens[a].start:s.tokens[b - 1].end]


def statement_begins(s, i):
    """Whether a statement begins at token i: in a block, not in a head or an initialiser."""
    around = s.inside[i]
    if around is None or not s.is_text(around, "{"):
        return False
    if s.is_text(i - 1, ";", "{", "}", "else"):
        return True
    if s.is_text(i - 1, ")"):
        head = s.partner.get(i - 1, 0) - 1
        return s.is_text(head, "if", "for", "while", "constexpr")
    return False


def is_declaration(s, first, last):
    """Whether one of these tokens names a new variable: a word right behind a word or a type's end."""
    i = first
    while i < last:
        if s.tokens[i + 1].kind == "word" and i + 1 <= last and (
                s.tokens[i].kind == "word" or s.is_text(i, ">", "&", "&&") or (i > first and s.is_text(i, "*"))):
            return True
        i = s.partner.get(i, i) + 1 if s.is_text(i, "(", "[", "{") else i + 1
    return False


def dropped_statement(s):
    for i, t in enumerate(s.tokens):
        if t.text in KEYWORDS or not (t.kind == "word" or t.text in ("*", "++", "--")) or not statement_begins(s, i):
            continue
        end = s.skip(i, {";"})
        if not s.is_text(end, ";"):
            continue
        assigned = s.skip(i, ASSIGNMENTS | {";"})
        if is_declaration(s, i, assigned - 1):
            continue
        steps = t.text in ("++", "--") or s.is_text(end - 1, "++", "--")
        if assigned < end or steps or (t.kind == "word" and s.is_text(end - 1, ")")):
            yield t.start, s.tokens[end].start, ""


def dropped_jump(s):
    for i, t in enumerate(s.tokens):
        if s.is_text(i, "break", "continue", "return") and s.is_text(i + 1, ";"):
            yield t.start, t.end, ""


def negated(s):
    for i, t in enumerate(s.tokens):
        if s.is_text(i, "if") and s.is_text(i + 1, "(") and i + 1 in s.partner:
            first, end = i + 2, s.partner[i + 1]
            compared = s.skip(first, {"==", "!=", "&&", "||", "?"})
            alone = s.is_text(compared, "==", "!=") and s.skip(compared + 1, {"==", "!=", "&&", "||", "?"}) == end
            if s.skip(first, {";", "="}) == end and first < end and not alone:  # "equality" turns those round
                at, to = s.tokens[first].start, s.tokens[end].start
                yield at, to, f"!({s.text[at:to]})"


def min_max(s):
    for i, t in enumerate(s.tokens):
        if t.kind == "word" and t.text in OTHER_WORD and s.is_text(i + 1, "(", "<"):
            plain = t.text not in ("min", "max")
            if (plain and not s.is_text(i - 1, ".", "->") and s.tokens[i - 1].kind != "word") or (
                    s.is_text(i - 1, "::") and s.is_text(i - 2, "std")):
                yield t.start, t.end, OTHER_WORD[t.text]


def assigned(s):
    others = {"+=": "=", "-=": "+=", "*=": "=", "/=": "*="}
    for i, t in enumerate(s.tokens):
        if t.text in others and t.kind == "operator" and s.is_text(s.inside[i] if s.inside[i] is not None else -1, "{"):
            yield t.start, t.end, others[t.text]


def last_left_out(s):
    """A loop over i < n that ends one early."""
    for i, t in enumerate(s.tokens):
        if not (s.is_text(i, "for") and s.is_text(i + 1, "(")):
            continue
        first = s.skip(i + 2, {";"})
        if not s.is_text(first, ";"):
            continue
        end = s.skip(first + 1, {";"})
        less = s.skip(first + 1, {"<", ";"})
        if s.is_text(end, ";") and s.is_text(less, "<") and s.is_binary(less):
            yield s.tokens[less].start, s.tokens[less].end, "+ 1 <"


def returned(s):
    for i, t in enumerate(s.tokens):
        if not s.is_text(i, "return"):
            continue
        end = s.skip(i + 1, {";"})
        if not s.is_text(end, ";") or end == i + 1:
            continue
        at, to = s.tokens[i + 1].start, s.tokens[end].start
        if end == i + 2 and s.is_text(i + 1, "true", "false"):
            yield at, to, "false" if s.tokens[i + 1].text == "true" else "true"
        elif s.skip(i + 1, {";", "?"}) == end:
            compared = s.skip(i + 1, {";", "<", ">", "<=", ">=", "==", "!=", "&&", "||"})
            if s.is_text(i + 1, "!") or (compared < end and s.is_binary(compared)):
                yield at, to, "true"
                yield at, to, "false"


def swapped_arguments(s):
    """Two neighbouring arguments that are plain names change places."""
    for i, t in enumerate(s.tokens):
        if not (s.is_text(i, "(", ",") and (s.inside[i] is not None or s.is_text(i, "("))):
            continue
        call = i if t.text == "(" else s.inside[i]
        if not s.is_text(call, "(") or call == 0 or s.tokens[call - 1].kind != "word" or \
                s.tokens[call - 1].text in KEYWORDS | set(OTHER_WORD):
            continue
        middle = s.skip(i + 1, {","})
        end = s.skip(middle + 1, {","}) if s.is_text(middle, ",") else middle
        if all(plain(s, a, b) for a, b in ((i + 1, middle), (middle + 1, end))) and \
                s.tokens[i + 1].text != s.tokens[middle + 1].text:
            one = s.text[s.tokens[i + 1].start:s.tokens[middle - 1].end]
            two = s.text[s.tokens[middle + 1].start:s.tokens[end - 1].end]
            yield s.tokens[i + 1].start, s.tokens[end - 1].end, f"{two}, {one}"


def plain(s, first, end):
    """Whether these tokens are a name, with members at most."""
    texts = s.tokens[first:end]
    return bool(texts) and len(texts) % 2 == 1 and all(
        (t.kind == "word" if k % 2 == 0 else t.text in (".", "->")) for k, t in enumerate(texts))


OPERATORS = {
    "sign": exchange({"+": "-", "-": "+"}, of_sums=True),
    "product": exchange({"*": "+", "/": "*", "%": "/"}),
    "bound": exchange({"<": "<=", "<=": "<", ">": ">=", ">=": ">"}),
    "equality": exchange({"==": "!=", "!=": "=="}),
    "logic": exchange({"&&": "||", "||": "&&"}),
    "constant_up": constant(1),
    "constant_down": constant(-1),
    "factor": factor,
    "dropped_term": dropped({"+", "-"}, SUM_ENDS),
    "dropped_first": dropped_first,
    "dropped_factor": dropped({"*", "/"}, FACTOR_ENDS),
    "one_branch": one_branch,
    "dropped_condition": dropped({"&&", "||"}, CONDITION_ENDS),
    "dropped_statement": dropped_statement,
    "dropped_jump": dropped_jump,
    "negated": negated,
    "min_max": min_max,
    "assigned": assigned,
    "last_left_out": last_left_out,
    "returned": returned,
    "swapped_arguments": swapped_arguments,
}


def passed_over(s):
    """The spans of characters in which nothing is changed."""
    spans = []
    for i, t in enumerate(s.tokens):
        if t.kind != "word":
            continue
        if t.text in ("throw", "static_assert", "using", "typedef", "enum", "case"):
            end = s.skip(i + 1, {";", ":"})
            spans.append((t.start, s.tokens[min(end, len(s.tokens) - 1)].end))
        elif t.text == "template" and s.is_text(i + 1, "<"):
            spans.append((t.start, s.text.find("\n", t.start)))
        elif MESSAGES.fullmatch(t.text) and s.is_text(i + 1, "(") and i + 1 in s.partner:
            spans.append((t.start, s.tokens[s.partner[i + 1]].end))
    return spans


def mutants_of(path, text):
    """All mutants of a source, in its order."""
    s = Source(text)
    spans = passed_over(s)
    found = []
    for operator, places in OPERATORS.items():
        for start, end, new in places(s):
            if not any(a <= start < b for a, b in spans):
                found.append((start, end, operator, new))
    found.sort()
    counts, mutants = {}, []
    for start, end, operator, new in found:
        line = text.count("\n", 0, start) + 1
        before = s.line_text(line)
        digest = hashlib.sha1(" ".join(before.split()).encode()).hexdigest()[:8]
        n = counts[digest, operator] = counts.get((digest, operator), -1) + 1
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", end)
        after = text[line_start:start] + new + text[end:line_end if line_end >= 0 else len(text)]
        mutants.append(Mutant(path, f"{path}:{digest}:{operator}:{n}", line, start, end, new, before.strip(),
                              " ".join(after.split())))
    return mutants


def in_order_of(seed, mutants):
    """The mutants in an order that depends on seed and names alone: what changes elsewhere shuffles nothing."""
    return sorted(mutants, key=lambda m: hashlib.sha1(f"{seed}:{m.name}".encode()).digest())
