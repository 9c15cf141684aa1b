#!/usr/bin/env python3
"""build_id.py ROOT OUTPUT DEPFILE FOLDER...: a C++ source that says what a program was built from.

The identity is a hash over the names and the contents of all sources and headers below the folders. Programs of
one version number that were built from other sources are told apart by it.
"""

import hashlib
import pathlib
import sys

ENDINGS = (".cc", ".cu", ".h", ".cuh")


def main():
    root, output, depfile = (pathlib.Path(word) for word in sys.argv[1:4])
    files = sorted(path for folder in sys.argv[4:] for path in (root / folder).rglob("*")
                   if path.suffix in ENDINGS and not path.name.startswith("."))
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    output.write_text('#include "tools/build_id.h"\n\n'
                      f'const char* const rondo::build_id = "{digest.hexdigest()[:16]}";\n')
    escaped = (str(path).replace("\\", "\\\\").replace(" ", "\\ ") for path in files)
    depfile.write_text(f"{output}: " + " \\\n  ".join(escaped) + "\n")


if __name__ == "__main__":
    main()
