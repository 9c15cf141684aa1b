"""code_hash.py OUTPUT OBJECT...: a C++ source with a hash of what was compiled for GPUs.

A result of a GPU's trial (engine/trial) holds for these kernels alone. The build calls this.
"""

import hashlib
import pathlib
import sys


def main():
    output, *objects = (pathlib.Path(word) for word in sys.argv[1:])
    digest = hashlib.sha256()
    for path in sorted(objects, key=lambda path: path.name):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    output.write_text('#include "kernels/devices.h"\n\n'
                      f'const char* const rondo::detail::device_code = "{digest.hexdigest()[:16]}";\n')


if __name__ == "__main__":
    main()
