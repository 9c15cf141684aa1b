"""Where gpu_check finds programs, CUDA libraries and data, and how it is packed for another machine.

In the repository: programs in build/, recipes in tools/. Packed (gpu_check --pack DIR): everything in
one folder, beside the script, with the shared libraries that the programs need.
"""

import glob
import os
import pathlib
import re
import shutil
import site
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent  # tools/, or the packed folder
PACKED = (HERE / "commit").is_file()
ROOT = HERE if PACKED else HERE.parent
PROGRAMS = {"checkop": "tools", "rondo": "tools", "simt_test": "tests/simt",
            "nccl_check": "tests/comm", "checkop_stand_in": "tests/cuda"}
NEVER_PACKED = {"checkop_stand_in"}  # for what is known without a GPU (forecast.py)
OPTIONAL = {"nccl_check"}  # of builds whose CUDA toolkit has NCCL's header
# What every Linux system has, or comes with the driver.
NOT_PACKED = re.compile(r"^(ld-linux|libc\.so|libm\.so|libdl\.|librt\.|libpthread\.|libcuda\.so|"
                        r"libnvidia|linux-vdso)")


ENDING = ".tar.xz"
MOST_PACKED = 32_000_000  # bytes
# Packed apart, for systems that have none as new.
CXX_LIBRARY = re.compile(r"^(libstdc\+\+|libgcc_s)\.so")


def find_program(name, build=None):
    """The path of a built program, or None."""
    if build:
        places = [build / PROGRAMS[name], build]
    else:
        places = [HERE] if PACKED else [ROOT / "build" / PROGRAMS[name]]
    for place in places:
        path = place / name
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def library_folders():
    """Folders with libraries, in order of preference: packed, toolkit, system, Python wheels."""
    toolkit = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda",
               *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]
    folders = [HERE / "lib"] if PACKED else []
    if PACKED and not has_cxx_library():
        folders.append(HERE / "lib" / "cxx")
    for root in filter(None, toolkit):
        folders += [pathlib.Path(root) / "lib64", pathlib.Path(root) / "targets/x86_64-linux/lib"]
    folders += map(pathlib.Path, ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"))
    for packages in {*site.getsitepackages(), site.getusersitepackages(), *python_folders()}:
        folders += map(pathlib.Path, sorted(glob.glob(f"{packages}/nvidia/*/lib")))
    return list(dict.fromkeys(f for f in folders if f.is_dir()))


def has_cxx_library():
    """Whether this system's C++ library serves the packed programs. If so it is the one to use: other
    programs that are started in the same environment may need a newer one than is packed."""
    if not (HERE / "checkop").is_file():
        return True
    path = {**os.environ, "LD_LIBRARY_PATH": str(HERE / "lib")}
    p = subprocess.run([str(HERE / "checkop"), "--help"], capture_output=True, timeout=60, check=False,
                       env=path)
    return p.returncode == 0


def python_folders():
    """site-packages of the active environment and of RONDO_PEER_PYTHON's."""
    roots = [os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX")]
    if peer := os.environ.get("RONDO_PEER_PYTHON"):
        roots.append(pathlib.Path(peer).parent.parent)
    return [f for root in filter(None, roots) for f in glob.glob(f"{root}/lib/python3*/site-packages")]


def find_libraries(folders):
    """{name: path} of the CUDA libraries that rondo or its peers may load."""
    found = {}
    for name in ("libcublasLt.so", "libcublas.so", "libcudnn.so", "libnccl.so"):
        for folder in folders:
            if matches := sorted(folder.glob(name + "*")):
                found[name] = str(matches[-1])
                break
    return found


def environment(folders):
    """This process's, with those folders where the loader looks."""
    # System folders are looked at anyway; naming them would put them before a program's own.
    named = [str(f) for f in folders if not str(f).startswith("/usr/lib")]
    path = os.pathsep.join(named + [p for p in [os.environ.get("LD_LIBRARY_PATH")] if p])
    return {**os.environ, "LD_LIBRARY_PATH": path} if path else dict(os.environ)


def source_version():
    """The commit, with -dirty when the tree differs from it; "unknown" outside a checkout."""
    if PACKED:
        return (HERE / "commit").read_text().strip()

    def git(*arguments):
        p = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True,
                           check=False)
        return p.stdout.strip() if p.returncode == 0 else None
    if shutil.which("git") is None or git("rev-parse", "HEAD") is None:
        return os.environ.get("RONDO_COMMIT", "unknown")
    # The record of an earlier run changes nothing that is measured.
    dirty = git("status", "--porcelain", "--", ".", ":!bench/results")
    return git("rev-parse", "HEAD") + ("-dirty" if dirty else "")


def digit_recordings():
    """Folder of the spoken-digit recordings, or None."""
    if PACKED:
        folder = HERE / "recordings"
    else:
        folder = pathlib.Path(os.environ.get("RONDO_SHARED", ROOT.parent / "shared")) / "data" / "fsdd"
    return folder if folder.is_dir() else None


def torch_python():
    """A Python that has PyTorch, or None. Only looks for it: to import it takes seconds."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for python in (os.environ.get("RONDO_PEER_PYTHON"), sys.executable, shutil.which("python3")):
        if not python:
            continue
        try:
            if subprocess.run([python, "-c", look], capture_output=True, timeout=30,
                              check=False).returncode == 0:
                return python
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def needed_libraries(program):
    """Shared libraries of a program, without the system's own."""
    out = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    paths = re.findall(r"=> (\S+) \(", out)
    return [pathlib.Path(p) for p in paths if not NOT_PACKED.match(pathlib.Path(p).name)]


def strip(path):
    """Makes a file smaller, where there is a program for it."""
    if tool := shutil.which("strip"):
        subprocess.run([tool, "--strip-unneeded", str(path)], check=False, stderr=subprocess.DEVNULL)


def pack(target, build):
    """As pack_folder(); into one file when the name ends with .tar.xz, whose folder is called as it is, and
    beside it, for the same place, the recordings in another. What is packed are then the files with their sizes.
    ValueError: a file without recordings that is larger than what machines take."""
    if not target.name.endswith(ENDING):
        return pack_folder(target, build)
    with tempfile.TemporaryDirectory() as directory:
        name = target.name[:-len(ENDING)]
        folder = pathlib.Path(directory) / name
        _, missing = pack_folder(folder, build)
        recordings = target.with_name(f"{name}-recordings{ENDING}")
        archives = {target: sorted(p for p in folder.iterdir() if p.name != "recordings")}
        if (folder / "recordings").is_dir():
            archives[recordings] = [folder / "recordings"]
        for file, members in archives.items():
            with tarfile.open(file, "w:xz", preset=6) as archive:
                for member in members:
                    archive.add(member, arcname=f"{name}/{member.name}")
    size = target.stat().st_size
    if size > MOST_PACKED:
        raise ValueError(f"{target} has {size / 1e6:.1f} MB, expected {MOST_PACKED / 1e6:.0f} at most: "
                         "pack a build for one architecture (-Dgpu_arch=90a)")
    return [f"{file} ({file.stat().st_size / 1e6:.1f} MB)" for file in archives], missing


def pack_folder(target, build):
    """Copies all that gpu_check needs into the folder `target`; what is in it, and what is missing
    there with the reason, as two lists of words."""
    target.mkdir(parents=True, exist_ok=True)
    (target / "lib" / "cxx").mkdir(parents=True, exist_ok=True)
    version, missing = source_version(), []
    for name in sorted(PROGRAMS.keys() - NEVER_PACKED):
        program = find_program(name, build)
        if program is None and name in OPTIONAL:
            missing.append(f"{name} (not built)")
            continue
        if program is None:
            raise FileNotFoundError(f"{name} is not built")
        shutil.copy(program, target / name)
        strip(target / name)
        for library in needed_libraries(program):
            place = target / "lib" / ("cxx" if CXX_LIBRARY.match(library.name) else "")
            shutil.copy(library, place / library.name)
            strip(place / library.name)
    shutil.copy(HERE / "gpu_check", target / "gpu_check")
    for folder, pattern in (("gpu", "*.py"), ("recipes", "*.toml")):
        (target / folder).mkdir(exist_ok=True)
        for path in sorted((HERE / folder).glob(pattern)):
            shutil.copy(path, target / folder / path.name)
    shutil.rmtree(target / "recordings", ignore_errors=True)
    if recordings := digit_recordings():
        shutil.copytree(recordings, target / "recordings")
    else:
        missing.append("recordings (not found; see RONDO_SHARED)")
    (target / "commit").write_text(version + "\n")
    return sorted(p.name for p in target.iterdir()), missing
