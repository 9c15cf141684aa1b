"""Running programs that may hang, or take a GPU down with them.

A program is given until a moment (time.monotonic()), and may be given a longest silence; then it is
killed with all that it started. What it said until then is kept.
"""

import dataclasses
import json
import os
import signal
import subprocess
import threading
import time

SLOW_DEATH = 10  # seconds that the driver may take to clean up after a killed program
MOST_LOSSES = 12  # of one pass of checkop: then something else is wrong
ANNOUNCED = "checkop: running "


@dataclasses.dataclass
class Ended:
    status: int = None  # exit status; negative: that signal; None: killed from here
    out: str = ""
    err: str = ""
    why: str = ""       # when it was killed from here


class Listener(threading.Thread):
    """Reads one pipe to its end, and remembers when it last heard something."""

    def __init__(self, pipe):
        super().__init__(daemon=True)
        self.pipe, self.pieces, self.heard = pipe, [], time.monotonic()
        self.start()

    def run(self):
        while piece := os.read(self.pipe.fileno(), 65536):
            self.pieces.append(piece)
            self.heard = time.monotonic()

    def text(self):
        self.join(2)  # a grandchild may hold the pipe
        if not self.is_alive():
            self.pipe.close()
        return b"".join(self.pieces).decode(errors="replace")


def kill(process):
    """Ends the program and what it started; one that the driver holds on to is left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(SLOW_DEATH)
    except subprocess.TimeoutExpired:
        pass


def run(command, environment, end, silence=None):
    """Runs a program; silence: seconds without a word after which it is taken to hang."""
    # A group of its own, not a session: whoever ends this process's session ends the program too.
    p = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, env=environment, preexec_fn=os.setpgrp)
    out, err = Listener(p.stdout), Listener(p.stderr)
    why = ""
    try:
        while p.poll() is None and not why:
            try:
                p.wait(0.05)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now >= end:
                    why = "out of time"
                elif silence and now - max(out.heard, err.heard) > silence:
                    why = f"hung: silent for {silence:g} s"
    finally:
        if p.poll() is None:
            kill(p)
    return Ended(None if why else p.returncode, out.text(), err.text(), why)


def json_lines(text):
    """One object per line; a last line cut short by a time-out is dropped."""
    objects = []
    for line in text.splitlines():
        try:
            objects.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return [o for o in objects if isinstance(o, dict)]


@dataclasses.dataclass
class Pass:
    """One run of checkop over its cases, in as many processes as it took."""
    rows: list = dataclasses.field(default_factory=list)
    complete: bool = False  # every case that the options name had its turn
    losses: list = dataclasses.field(default_factory=list)  # cases that ended the process or hung it
    last: str = ""          # case that began last
    exit: int = None        # exit status of the last process
    stderr: str = ""


def split_name(name):
    """("op/case/more backend:variant") -> op, case, variant."""
    label, _, variant = name.rpartition(" ")
    op, _, case = label.partition("/")
    return op, case, variant.partition(":")[2]


def checkop(program, options, environment, end, silence):
    """A Pass. A case that crashes, hangs or loses the device fails, and the rest goes on without it."""
    done, after = Pass(), None
    while len(done.losses) < MOST_LOSSES:
        ended = run([program, *options, "--json", "--announce",
                     *(["--after", after] if after else [])], environment, end, silence)
        rows = json_lines(ended.out)
        done.rows += rows
        done.exit = ended.status
        names = [line[len(ANNOUNCED):] for line in ended.err.splitlines() if line.startswith(ANNOUNCED)]
        said = [line for line in ended.err.splitlines() if line and not line.startswith(ANNOUNCED)]
        done.stderr = "\n".join(said)[-2000:]
        done.last = names[-1] if names else done.last
        if ended.status in (0, 1):  # 1: kernels failed, which the rows tell
            done.complete = True
            break
        if ended.why == "out of time" or not names:
            break
        why = ended.why or f"exit {ended.status}: {' '.join(said)[-500:]}"
        op, case, variant = split_name(names[-1])
        done.losses.append({"case": names[-1], "why": why})
        last = rows[-1] if rows else {}
        if (last.get("op"), last.get("case"), last.get("variant")) != (op, case, variant):
            done.rows.append({"op": op, "case": case, "variant": variant, "status": "failed",
                              "detail": why, "digest": ""})
        after = names[-1]
    return done
