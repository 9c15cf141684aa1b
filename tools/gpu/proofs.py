#!/usr/bin/env python3
"""Which GPU kernels a committed result stands behind.

Kernels that poll, or whose asm or memory order the simulator cannot show, are chosen by default on
GPUs only when a result in bench/results (written by tools/gpu_check) says that they passed there,
twice with the same bits, at the sizes of tests and of benchmarks, with the sources they have now. What
that gives is kept in kernels/lstm/lstm_proven.h, so that the build needs no more than the header.

    tools/gpu/proofs.py              compare the header with the results (a test does this)
    tools/gpu/proofs.py --update     write the header
    tools/gpu/proofs.py --root DIR   of another tree
    tools/gpu/proofs.py --compiled FILE --depfile FILE   for the build: the hashes of the sources, as a
                                     C++ source and what it depends on

Exit status: 0 the header says what the results say, 1 it does not, 2 wrong usage.
"""

import argparse
import hashlib
import json
import pathlib
import re
import sys

HEADER = pathlib.Path("kernels/lstm/lstm_proven.h")
RESULTS = pathlib.Path("bench/results")
KERNELS = {f"lstm_{way}/{variant}": f"kernels/lstm/gpu/lstm_{stem}_{way}.cu"
           for variant, stem in (("cluster", "cluster"), ("cluster_split", "cluster"),
                                 ("grid_cluster", "grid_cluster"), ("grid", "grid"))
           for way in ("forward", "backward")}
KERNELS |= {f"lstm_stack_{way}/wavefront": "kernels/lstm/stack/lstm_stack_wavefront.cu" for way in ("forward", "backward")}
# These are gpu_check's: all of them must have run to their end and passed.
SECTIONS = ("lstm_twice", "full_size")
# What is compiled for GPUs of the folder's own, and every asm wrapper.
COUNTED = re.compile(r"kernels/lstm/|kernels/simt/(vocabulary_cuda|divide_fast)\.h$")


def included(root, path, seen):
    """The files that make up a kernel: itself and what it includes, as far as it counts."""
    if path in seen or not (root / path).is_file():
        return
    seen.add(path)
    for name in re.findall(r'^#include "([^"]+)"', (root / path).read_text(), re.MULTILINE):
        included(root, name, seen)


def without_comments(text):
    """C++ without comments and with single blanks, so that words alone void no result."""
    pattern = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|//[^\n]*|/\*.*?\*/'
    kept = re.sub(pattern, lambda m: m.group() if m.group()[0] in "\"'" else " ", text, flags=re.DOTALL)
    return " ".join(kept.split())


def fingerprint(root, source, seen):
    """The hash of one kernel's sources; `seen` learns what was read."""
    included(root, source, seen)
    digest = hashlib.sha256()
    for path in sorted(seen):
        # The header itself changes when a result is committed.
        if COUNTED.match(path) and path != str(HEADER):
            digest.update(f"{path}\n{without_comments((root / path).read_text())}\n".encode())
    return digest.hexdigest()


def fingerprints(root, read=None):
    """{"lstm_forward/grid": hash of its sources}; without those whose source is not there. The set
    `read` learns the files."""
    found = {}
    for kernel, source in KERNELS.items():
        if (root / source).is_file():
            seen = set()
            found[kernel] = fingerprint(root, source, seen)
            if read is not None:
                read |= seen
    return found


def write_compiled(root, source, depfile):
    """What a program says of the sources it was compiled from, which a checkout may no longer have."""
    read = set()
    found = json.dumps(fingerprints(root, read))
    source.write_text("// Written by tools/gpu/proofs.py.\n"
                      "extern const char* const compiled_kernel_sources;\n"
                      f'const char* const compiled_kernel_sources = R"({found})";\n')
    depfile.write_text(f"{source}: {' '.join(str(root / path) for path in sorted(read))}\n")


def outcomes(cases, moved):
    """{"op/variant": {"passed": n, "failed": n, "moved": n}} of checkop's rows, without what was skipped."""
    counts = {}
    for row in cases:
        if row["status"] in ("passed", "failed"):
            of = counts.setdefault(f"{row['op']}/{row['variant']}", {"passed": 0, "failed": 0, "moved": 0})
            of[row["status"]] += 1
    for row in moved:
        if of := counts.get(f"{row['op']}/{row['variant']}"):
            of["moved"] += 1
    return counts


def proves(result, kernel, hash_now):
    """Whether one result file stands behind the kernel as it is."""
    if result.get("sources", {}).get(kernel) != hash_now:
        return False
    for section in SECTIONS:
        run = result.get("sections", {}).get(section, {})
        counts = run.get("variants", {}).get(kernel, {})
        good = counts.get("passed", 0) > 0 and counts.get("failed") == 0 and counts.get("moved") == 0
        if not (good and run.get("complete")):
            return False
    return True


def proven(root):
    """{kernel: the result's name or None}."""
    results = []
    for path in sorted((root / RESULTS).glob("*.json")):
        result = json.loads(path.read_text())
        if isinstance(result, dict) and "sources" in result:
            results.append((path.name, result))
    now = fingerprints(root)
    return {kernel: next((name for name, result in results
                          if kernel in now and proves(result, kernel, now[kernel])), None)
            for kernel in KERNELS}


def constant(kernel):
    op, variant = kernel.split("/")
    return f"{op}_{variant}_proven"


def header(root, proofs):
    """The header's text, with the constants set."""
    text = (root / HEADER).read_text()
    for kernel, proof in proofs.items():
        text, found = re.subn(rf"(\b{constant(kernel)} = )\w+;", rf"\g<1>{'true' if proof else 'false'};", text)
        if found != 1:
            raise SystemExit(f"proofs: {HEADER} has no constant {constant(kernel)}")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the header")
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent.parent)
    parser.add_argument("--compiled", type=pathlib.Path, help="write this C++ source, and --depfile")
    parser.add_argument("--depfile", type=pathlib.Path)
    args = parser.parse_args()
    if (args.compiled is None) != (args.depfile is None):
        parser.error("--compiled and --depfile go together")
    if args.compiled:
        write_compiled(args.root, args.compiled, args.depfile)
        return 0
    proofs = proven(args.root)
    wanted = header(args.root, proofs)
    for kernel, proof in proofs.items():
        print(f"{kernel}: {f'proven by {proof}' if proof else 'no result; by name only'}")
    if wanted == (args.root / HEADER).read_text():
        return 0
    if args.update:
        (args.root / HEADER).write_text(wanted)
        return 0
    print(f"proofs: {HEADER} says otherwise; tools/gpu/proofs.py --update", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
