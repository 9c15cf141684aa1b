"""wheel.py BUILD OUT [PLATFORM]: writes the wheel of the package beside this file into the folder OUT, and its name to
standard output. PLATFORM: where it runs, "manylinux_2_28_aarch64"; without it, on systems like this one.

A wheel is a ZIP archive; the same sources and the same build give the same bytes.
"""

import base64
import hashlib
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
METADATA = """Metadata-Version: 2.1
Name: rondo
Version: {version}
Summary: CTC/LSTM models: recognition, streams, decoding, alignment, the CTC loss, training
License: Apache-2.0
Classifier: Programming Language :: Python :: 3
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Requires-Python: >=3.9
Requires-Dist: numpy >=1.23
Description-Content-Type: text/markdown

{description}"""
WHEEL = """Wheel-Version: 1.0
Generator: tools/python/wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = """[console_scripts]
rondo = rondo.__main__:main
"""


def stripped(file):
    """The bytes of a library or program of this machine, without what only debuggers read."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["strip", "--strip-unneeded", "-o", out.name, file], check=True)
        return pathlib.Path(out.name).read_bytes()


def contents(build, version, platform_tag):
    """(name in the archive, bytes, whether it is a program) of each file."""
    # What is for other machines was linked without symbols, and the strip of this one may not know it.
    content = pathlib.Path.read_bytes if platform_tag or not shutil.which("strip") else stripped
    for source in sorted((HERE / "rondo").iterdir()):
        if source.suffix == ".py" or source.name == "py.typed":
            yield f"rondo/{source.name}", source.read_bytes(), False
    yield "rondo/lib/librondo.so.0", content((build / "engine/c/librondo.so.0").resolve()), True
    yield "rondo/bin/rondo", content(build / "tools/rondo"), True
    about = f"rondo-{version}.dist-info"
    description = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    yield f"{about}/METADATA", METADATA.format(version=version, description=description).encode(), False
    yield f"{about}/WHEEL", WHEEL.format(tag=tag_of(platform_tag)).encode(), False
    yield f"{about}/entry_points.txt", ENTRY_POINTS.encode(), False
    yield f"{about}/LICENSE", (ROOT / "LICENSE").read_bytes(), False


def tag_of(platform_tag):
    return f"py3-none-{platform_tag or 'linux_' + platform.machine()}"


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    build, out = (pathlib.Path(p) for p in sys.argv[1:3])
    platform_tag = sys.argv[3] if len(sys.argv) == 4 else ""
    for needed in ("engine/c/librondo.so.0", "tools/rondo"):
        if not (build / needed).exists():
            print(f"wheel.py: {build / needed} is not there; is {build} the folder of a build?", file=sys.stderr)
            return 1
    version = re.search(r"^  version: '([^']+)'", (ROOT / "meson.build").read_text(encoding="utf-8"), re.MULTILINE)[1]
    path = out / f"rondo-{version}-{tag_of(platform_tag)}.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name, data, runs):
            info = zipfile.ZipInfo(name)  # of 1980, always
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if runs else 0o100644) << 16
            archive.writestr(info, data)

        for name, data, runs in contents(build, version, platform_tag):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data, runs)
        name = f"rondo-{version}.dist-info/RECORD"
        add(name, "".join([*record, f"{name},,\n"]).encode(), False)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
