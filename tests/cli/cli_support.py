"""What the tests of the command line share: running it, and making tiny data to run it on.

Standard library only. A test is a script called with the path of `rondo`; it ends with
main(globals()), which runs every function named test_*, and exits 0, 1 or 77 (all skipped).
"""

import array
import contextlib
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import wave
import zlib

RONDO = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "rondo"
# Unless a test says otherwise: results are compared with those of the cpu.
os.environ.setdefault("RONDO_DEVICE", "cpu")
RATE = 8000
TONES = {"a": 400, "b": 1000, "c": 2200}
TIMEOUT = 120


class Skip(Exception):
    """The machine lacks what a test needs."""


def kenlm_binary(options):
    """One of KenLM's binaries that tests/lm has, and a sentence with its log10 p by KenLM."""
    header = pathlib.Path(__file__).resolve().parent.parent / "lm" / "kenlm_golden.h"
    found = re.search(r'\{"%s", \d+,\n((?:  "[0-9a-f]+"\n?)+)\},.*?\n\{"(w[^"]*)", \{([^}]*)\}' % options,
                      header.read_text(), re.DOTALL)
    scores = [float(score) for score in found[3].split(",")]
    return zlib.decompress(bytes.fromhex("".join(re.findall("[0-9a-f]{2,}", found[1])))), found[2], sum(scores)


def check(condition, *message):
    if not condition:
        raise AssertionError(" ".join(str(m) for m in message))


def start(*words, program=RONDO, preexec_fn=None, **popen):
    """The command, running, its output readable as text."""
    popen.setdefault("stdout", subprocess.PIPE)
    popen.setdefault("stderr", subprocess.PIPE)

    def before():
        # Under nohup, SIGHUP would be ignored; in a script's background, SIGINT.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if preexec_fn:
            preexec_fn()

    return subprocess.Popen([program, *map(str, words)], preexec_fn=before, **popen)


class Patience:
    """So many seconds, not counting those in which this process itself was held up (a busy or frozen
    machine). Ask it several times a second."""

    def __init__(self, seconds):
        self.left, self.last = seconds, time.monotonic()

    def is_over(self):
        now = time.monotonic()
        self.left -= min(now - self.last, 0.5)
        self.last = now
        return self.left <= 0


def wait_until(condition, process=None, pause=0.01):
    """Until it holds, while the process (if it is given) lives or once it has ended."""
    patience = Patience(TIMEOUT)
    while True:
        over = process and process.poll() is not None  # asked first: it may end between these two
        if condition():
            return
        check(not over, "ended early:", over and (process.returncode, process.communicate()))
        check(not patience.is_over(), "nothing happens")
        time.sleep(pause)


def states_of(pid):
    """The states (R, S, T, Z ...) of a process's threads; none if there is no such process."""
    states = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                stat = pathlib.Path(f"/proc/{pid}/task/{task}/stat").read_text()
                states.append(stat.rsplit(")", 1)[1].split()[0])
    return states


def is_sanitized():
    """Whether RONDO was built for a sanitizer: its time and memory are not a user's."""
    return any(name in pathlib.Path(RONDO).read_bytes() for name in (b"__asan_init", b"__tsan_init"))


def peak_memory(*words):
    """kB that a command had at most, as far as it can be seen from outside; it has to end well."""
    # Meson asks malloc to write to what is only reserved.
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_PERTURB_"}
    process, peak = start(*words, stdout=subprocess.DEVNULL, env=environment), 0
    while process.poll() is None:
        with contextlib.suppress(OSError):
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            peak = max([peak, *map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))])
        time.sleep(0.005)
    check(process.returncode == 0, words, process.stderr.read())
    return peak


def halt(pid):
    """Stops a process: where this is true, it stands still. False if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    patience = Patience(TIMEOUT)
    while not set(states := states_of(pid)) <= set("ZX"):
        if set(states) <= set("TZX"):
            return True
        check(not patience.is_over(), "it does not stop:", states)
        time.sleep(0.001)
    return False


def go_on(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def is_pending(pid, number):
    """Whether a signal has been sent to a process that has not taken it yet."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return bool(int(re.search(r"ShdPnd:\s*(\w+)", status)[1], 16) >> (number - 1) & 1)


def catches_signals(pid):
    """Whether a process has got so far as to install its handlers."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    caught = int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16)
    return all(caught >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGXCPU))  # the first and the last of them


def until_in_time(attempt):
    """Repeats what has to come before the end of a run, and on a busy machine may come too late: it says
    then that it did (False), and has left nothing behind."""
    for _ in range(20):
        if attempt():
            return
    raise AssertionError("never in time")


def output_of(process, seconds, stdin=None):
    """What it writes to stdout and stderr until it ends. After so many seconds it is killed:
    TimeoutExpired."""
    patience = Patience(seconds)
    while True:
        try:
            return tuple((b or b"").decode(errors="replace") for b in process.communicate(stdin, timeout=0.25))
        except subprocess.TimeoutExpired:
            stdin = None  # communicate() remembers
            if patience.is_over():
                process.kill()
                process.communicate()
                raise


def run(*words, code=0, says=(), errs=(), not_says=(), stdin=b"", **popen):
    """Runs the command; expects its exit code and texts in stdout (says) and stderr (errs).

    A failure (code 1) must be one clear sentence: a single line "rondo: ..." on stderr, and not an
    internal error, unless `errs` is a list that asks for more.
    """
    process = start(*words, stdin=subprocess.PIPE, **popen)
    try:
        out, err = output_of(process, TIMEOUT, stdin)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"rondo {' '.join(map(str, words))}: did not end in {TIMEOUT} s")
    # A sanitizer's own remark on an allocation that came back as null, which is what is tested.
    err = re.sub(r"(?m)^==\d+==WARNING: AddressSanitizer failed to allocate .*\n", "", err)
    shown = f"rondo {' '.join(map(str, words))}\n--- stdout\n{out}--- stderr\n{err}---"
    check(process.returncode == code, f"exit {process.returncode}, expected {code}:", shown)
    check("internal error" not in err, "an internal error:", shown)
    check("internal error" not in out, "an internal error:", shown)
    for text in [says] if isinstance(says, str) else says:
        check(text in out, f"'{text}' is not in stdout:", shown)
    for text in [errs] if isinstance(errs, str) else errs:
        check(text in err, f"'{text}' is not in stderr:", shown)
    for text in [not_says] if isinstance(not_says, str) else not_says:
        check(text not in out + err, f"'{text}' is in the output:", shown)
    if code == 1:
        check(err.startswith("rondo: ") or "\nrondo: " in err, "no sentence on stderr:", shown)
    return out, err


def fails(*words, errs, lines=1, **more):
    """Exit 1 and a sentence on stderr that has all of `errs`, in so many lines."""
    out, err = run(*words, code=1, errs=errs, **more)
    check(len(err.splitlines()) == lines, f"{len(err.splitlines())} lines, expected {lines}:", err)
    return out, err


@contextlib.contextmanager
def folder(within=None):
    path = pathlib.Path(tempfile.mkdtemp(prefix="rondo-cli-", dir=within))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def tone_samples(text, rng):
    """A short tone for each letter, silence between; a little noise."""
    samples = array.array("h")
    for letter in text.replace(" ", ""):
        n = int(RATE * rng.uniform(0.09, 0.12))
        f = TONES[letter] * 2 * math.pi / RATE
        samples.extend(int(9000 * math.sin(f * i)) + rng.randrange(-60, 61) for i in range(n))
        samples.extend(rng.randrange(-60, 61) for _ in range(int(RATE * rng.uniform(0.05, 0.07))))
    return samples


def write_wav(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())


def write_manifest(path, lines):
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def tone_corpus(root, train=60, dev=12, seed=1):
    """root/train.jsonl and root/dev.jsonl: strings of the letters a, b, c as tones."""
    rng = random.Random(seed)
    for part, count in (("train", train), ("dev", dev)):
        lines = []
        for i in range(count):
            text = " ".join(rng.choice("abc") for _ in range(rng.randrange(2, 6)))
            samples = tone_samples(text, rng)
            name = f"{part}{i:03}.wav"
            write_wav(root / name, samples)
            lines.append({"audio_filepath": name, "text": text, "speaker": f"s{i % 2}",
                          "duration": len(samples) / RATE})
        write_manifest(root / f"{part}.jsonl", lines)
    shutil.copy(root / "dev.jsonl", root / "test.jsonl")


def npy(rows, dtype="<f4"):
    """A matrix as the bytes of a .npy file."""
    shape = (len(rows), len(rows[0]))
    header = str({"descr": dtype, "fortran_order": False, "shape": shape})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    body = b"".join(struct.pack(f"<{len(r)}f", *r) for r in rows)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body


def read_npy(path):
    """(shape, values) of a float32 .npy file."""
    data = path.read_bytes()
    check(data[:6] == b"\x93NUMPY", path, "is not a .npy file")
    length = struct.unpack("<H", data[8:10])[0]
    header = data[10:10 + length].decode()
    shape = tuple(int(n) for n in header.split("(")[1].split(")")[0].split(",") if n.strip())
    values = struct.unpack(f"<{math.prod(shape)}f", data[10 + length:])
    return shape, values


def safetensors(tensors):
    """{name: rows} as the bytes of a .safetensors file."""
    header, body = {}, b""
    for name, rows in tensors.items():
        piece = b"".join(struct.pack(f"<{len(r)}f", *r) for r in rows)
        header[name] = {"dtype": "F32", "shape": [len(rows), len(rows[0])],
                        "data_offsets": [len(body), len(body) + len(piece)]}
        body += piece
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def read_safetensors(path):
    """Tensors by name (shape and bytes), and the metadata."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    return {name: (t["shape"], data[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]])
            for name, t in header.items()}, metadata


def feature_corpus(root, kind, train=48, dev=12, seed=2):
    """Ready features of 6 columns. kind: ctc (letters as unit vectors), labels (the same
    as numbers, without text), classify, regress."""
    rng = random.Random(seed)
    for part, count in (("train", train), ("dev", dev)):
        lines = []
        for i in range(count):
            line = {"features_filepath": f"{part}{i:03}.npy"}
            noise = lambda: [rng.gauss(0, 0.1) for _ in range(6)]
            rows = []
            if kind in ("ctc", "labels"):
                letters = [rng.choice("abc") for _ in range(rng.randrange(2, 5))]
                if kind == "ctc":
                    line["text"] = "".join(letters)
                else:
                    line["labels"] = ["abc".index(letter) + 1 for letter in letters]
                for letter in letters:
                    for _ in range(rng.randrange(3, 5)):
                        rows.append(noise())
                        rows[-1]["abc".index(letter)] += 1
                    rows.extend(noise() for _ in range(2))
            else:
                which, level = rng.randrange(3), rng.uniform(-1, 1)
                for _ in range(rng.randrange(6, 12)):
                    rows.append(noise())
                    rows[-1][which if kind == "classify" else 0] += 1 if kind == "classify" else level
                line.update({"label": which} if kind == "classify" else {"target": [level, -level]})
            (root / line["features_filepath"]).write_bytes(npy(rows))
            lines.append(line)
        write_manifest(root / f"{part}.jsonl", lines)
    shutil.copy(root / "dev.jsonl", root / "test.jsonl")


# Settings that make training on these corpora a matter of a second or two.
TINY = ["model.hidden=24", "model.layers=1", "model.dropout=0", "optimizer.lr=0.02",
        "lr.warmup_steps=5", "training.threads=2", "training.samples=0"]
TONE = TINY + ["features.rate=8000", "features.bins=20", "data.batch_frames=600"]
READY = TINY + ["features.type=ready", "features.cmvn=none", "model.subsample=1",
                "data.batch_frames=100"]


def train(data, out, *settings, base=READY, **more):
    return run("train", *base, f"data={data}", f"training.checkpoint_dir={out}", *settings, **more)


def log_of(directory, event):
    lines = (pathlib.Path(directory) / "log.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["event"] == event]


def log_so_far(directory, event, log="log.jsonl"):
    """The entries of a run that goes on, or did not end well: the last line may not be whole."""
    entries = []
    with contextlib.suppress(FileNotFoundError):
        for line in (pathlib.Path(directory) / log).read_text().splitlines():
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
    return [entry for entry in entries if entry["event"] == event]


def last_step(directory, log="log.jsonl"):
    """The newest step in a log so far, 0 if there is none."""
    return max([entry["step"] for entry in log_so_far(directory, "step", log)], default=0)


def checkpoints(directory):
    """Those of directory/run, the newest last."""
    return sorted((directory / "run").glob("checkpoint-*"))


def weights_of(directory):
    """The bytes of a run's best model, and of the newest generation's weights and optimizer."""
    directory = pathlib.Path(directory)
    newest = sorted(directory.glob("checkpoint-*"))[-1]
    names = {"model.safetensors": "newest", "optimizer.safetensors": "optimizer"}  # else of stages
    return {"best": (directory / "model.safetensors").read_bytes(),
            **{names.get(file.name, file.name): file.read_bytes()
               for file in newest.glob("*.safetensors")}}


def main(names):
    failed = skipped = 0
    tests = [f for name, f in names.items() if name.startswith("test_")]
    wanted = sys.argv[2:]
    for test in tests:
        if wanted and test.__name__ not in wanted:
            continue
        began = time.monotonic()
        try:
            test()
            result = "ok"
        except Skip as reason:
            skipped += 1
            result = f"SKIPPED: {reason}"
        except Exception:
            failed += 1
            traceback.print_exc()
            result = "FAILED"
        print(f"{test.__name__}: {result} ({time.monotonic() - began:.1f} s)", flush=True)
    sys.exit(1 if failed else 77 if skipped == len(tests) else 0)
