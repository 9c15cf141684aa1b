"""Machine code of CUDA kernels (SASS): loops, and a prediction of what they take. `cycles` says how it predicts."""

import collections
import dataclasses
import os
import re
import shutil
import subprocess
import tempfile

import nvcc as cuda

# Cycles until the scoreboard is free. Loads from memory: second-level cache, as prefetched data is.
LATENCY = {"SHFL": 24, "LDS": 29, "LDSM": 33, "LDG": 260, "LDC": 40, "LDCU": 40, "ULDC": 12, "MUFU": 22, "VOTE": 12,
           "R2UR": 12, "REDUX": 24, "STG": 12, "STS": 12, "POPC": 16, "FLO": 16, "I2F": 16, "F2I": 16,
           "S2R": 30, "BAR": 20, "ATOMG": 300, "ATOMS": 60, "LD": 260, "ST": 12, "F2F": 20, "I2FP": 6}
OTHER = 20
READ = 16  # until an instruction without fixed latency has read its registers

LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s+/\* (0x[0-9a-f]{16}) \*/")
SECOND = re.compile(r"^\s+/\* (0x[0-9a-f]{16}) \*/")


@dataclasses.dataclass
class Instruction:
    address: int
    text: str
    stall: int = 1
    writes: int = 7    # the scoreboard that is busy until its result is there; 7: none
    reads: int = 7     # the same until its operands are read
    waits: int = 0     # mask of those to wait for

    @property
    def opcode(self):
        return re.sub(r"^@!?U?P\w+\s+", "", self.text).split()[0]

    @property
    def unit(self):
        return self.opcode.split(".")[0]

    @property
    def target(self):
        found = re.search(r"\bBRA\S*\s+(?:!?U?P\w+,\s*)*`?\(?(?:0x)?([0-9a-f]+)", self.text)
        return int(found.group(1), 16) if found else None

    @property
    def conditional(self):
        return self.text.startswith("@") or "DIV" in self.opcode


def decode(instruction, high):
    bits = high >> 41
    instruction.stall = bits & 0xf
    instruction.writes = (bits >> 5) & 7
    instruction.reads = (bits >> 8) & 7
    instruction.waits = (bits >> 11) & 0x3f


def parse(sass):
    """{mangled name: [Instruction]}"""
    functions, current = {}, None
    for line in sass.splitlines():
        if "Function :" in line:
            current = functions.setdefault(line.split(":")[1].strip(), [])
        elif found := LINE.search(line):
            current.append(Instruction(int(found.group(1), 16), found.group(2)))
        elif current and (found := SECOND.match(line)):
            decode(current[-1], int(found.group(1), 16))
    return functions


def loops(code):
    """(first, last) indices of backward branches."""
    index = {x.address: i for i, x in enumerate(code)}
    found = {}
    for i, x in enumerate(code):
        if x.target is not None and x.target <= x.address and x.target in index and index[x.target] < i:
            found[index[x.target]] = max(i, found.get(index[x.target], 0))
    return sorted(found.items())


def waits(code, first, last):
    """Whether a wait goes on between these instructions: it polls, sleeps, or gives up."""
    return any(x.unit in ("NANOSLEEP", "YIELD", "BPT") or "PHASECHK" in x.text for x in code[first:last])


def vote(x):
    """The predicate that a vote of the lanes sets, if it does."""
    found = re.match(r"VOTE\S* (U?P\d)", x.text)
    return found.group(1) if found else None


def path(code, first, last, ready=False):
    """Instructions of one turn: what lanes vote about is rare, all else is done; with `ready`, waits are over at once."""
    index = {x.address: i for i, x in enumerate(code)}
    turn, i, seen, voted = [], first, set(), None
    while i not in seen and i < len(code):
        seen.add(i)
        x = code[i]
        turn.append(x)
        if x.opcode == "EXIT" and not x.conditional or i == last:
            break
        voted = vote(x) or voted
        to = index.get(x.target) if x.target is not None else None
        rare = x.conditional and voted and x.text.split()[0].lstrip("@!") == voted
        over = ready and x.conditional and to is not None and i < to <= last and waits(code, i + 1, to)
        taken = to is not None and (not x.conditional or (rare and i < to <= last) or over)
        if rare:
            voted = None
        i = to if taken else i + 1
    return turn


def turns(code, ready=False):
    """(number, instructions of a turn) of each loop: the walk from its first instruction comes back there.

    Code that is set apart for lanes that have diverged jumps back too, into the midst of what is no loop, or of one."""
    for number, (first, _) in enumerate(loops(code)):
        back = [i for i, x in enumerate(code) if i > first and x.target == code[first].address]
        for last in reversed(back):
            turn = path(code, first, last, ready)
            if turn[-1] is code[last]:
                yield number, turn
                break


def whole(code, turns):
    """Instructions of one warp from a kernel's first to its last, with so many turns of each loop; other loops have none.

    Branches around loops that have no turns are taken; of others, and of what lanes vote about, as in path()."""
    index = {x.address: i for i, x in enumerate(code)}
    numbered = loops(code)
    heads = {first: number for number, (first, _) in enumerate(numbered)}
    # By first instruction, whether the loop has turns.
    has_turns = [(first, last, bool(turns.get(number))) for number, (first, last) in enumerate(numbered)]
    left, i, voted, count = {}, 0, None, collections.Counter()
    while i < len(code):
        x = code[i]
        if i in heads and i not in left:
            left[i] = turns.get(heads[i], 0)
            if not left[i]:
                i = dict(numbered)[i] + 1
                del left[list(left)[-1]]
                continue
        count[x.unit] += 1
        if x.opcode == "EXIT" and not x.conditional:
            return count
        voted = vote(x) or voted
        to = index.get(x.target) if x.target is not None else None
        if to is None or x.unit != "BRA":
            i += 1
            continue
        rare = x.conditional and voted and x.text.split()[0].lstrip("@!") == voted
        if rare:
            voted = None
        if to <= i:
            left[to] = left.get(to, 1) - 1
            taken = left[to] > 0
            if not taken:
                left.pop(to)
        else:
            inside = [n for first, last, n in has_turns if i < first and last < to]
            taken = not x.conditional or rare or (bool(inside) and not any(inside))
        i = to if taken else i + 1
    return count


def cycles(turn, turns=4, trace=None):
    """The cycles of one turn in a steady state."""
    free = collections.defaultdict(int)
    now, starts = 0, []
    for k in range(turns):
        starts.append(now)
        for x in turn:
            ready = max([now] + [free[b] for b in range(6) if x.waits >> b & 1])
            if trace is not None and k == turns - 1:
                trace.append((ready - starts[-1], ready - now, x.text))
            for board, latency in ((x.writes, LATENCY.get(x.unit, OTHER)), (x.reads, READ)):
                free[board] = max(free[board], ready + latency)
            now = ready + max(x.stall, 1)
    starts.append(now)
    return starts[-1] - starts[-2]


def find_cuobjdump():
    for place in (shutil.which("cuobjdump"), "/usr/local/cuda/bin/cuobjdump"):
        if place and os.access(place, os.X_OK):
            return place
    return None


def read(source, cubin, architecture):
    """{readable name: [Instruction]} of the kernels of a compiled file, or else of a source; None without the tools."""
    dump, compiler = find_cuobjdump(), cuda.find()
    if not dump or not (cubin or compiler):
        return None
    with tempfile.TemporaryDirectory() as directory:
        selection = ["-arch", f"sm_{architecture}"] if cubin else []
        if not cubin:
            cubin = os.path.join(directory, "kernels.cubin")
            flags = [f"-gencode=arch=compute_{architecture},code=sm_{architecture}", "-cubin", "-o", cubin]
            subprocess.run([compiler, *cuda.FLAGS, *flags, source], check=True)
        text = subprocess.run([dump, "-sass", *selection, cubin], check=True, capture_output=True, text=True).stdout
    functions = parse(text)
    names = cuda.demangle(list(functions))
    return {names[mangled]: code for mangled, code in functions.items()}
