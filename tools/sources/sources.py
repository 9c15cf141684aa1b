#!/usr/bin/env python3
"""Finds the sources of the libraries, for Meson, which has no wildcards.

    sources.py find ROOT FILE FOLDER...    prints every .cc and .cu below the folders, sorted, as LIBRARY:PATH: the
                                           nearest folder above it that has a meson.build, and its path from there;
                                           FILE.found gets the same
    sources.py watch ROOT FILE FOLDER...   makes ninja list them in FILE whenever a folder has changed, and the build
                                           configure itself when FILE has
    sources.py list ROOT FILE FOLDER...    what ninja runs: as find, but FILE is written, and only if it says otherwise

`watch` runs when Meson has written build.ninja (meson.add_postconf_script) and adds to it: FILE depends on the
folders, and build.ninja on FILE. So a source that is new, renamed or gone is noticed by the next ninja, before
it builds anything, and an editor's backup file costs one listing. Meson alone would go on with the sources that
it saw when it was configured.
"""

import os
import pathlib
import re
import shutil
import sys


def visible_folders(root, folders):
    """The folders and those below, hidden ones left out, sorted."""
    for folder in folders:
        for path, below, _ in os.walk(root / folder):
            below[:] = sorted(name for name in below if not name.startswith((".", "__")))
            yield pathlib.Path(path)


def find(root, folders):
    """"engine/io:checkpoint.cc" for every source; editors' hidden files are none."""
    for folder in visible_folders(root, folders):
        library = next(above for above in (folder, *folder.parents) if (above / "meson.build").is_file())
        for path in folder.iterdir():
            if path.suffix in (".cc", ".cu") and not path.name.startswith("."):
                found = f"{library.relative_to(root).as_posix()}:{path.relative_to(library).as_posix()}"
                if not re.fullmatch(r"[\w./+-]+:[\w./+-]+", found):
                    sys.exit(f"sources.py: {path}: expected a name of letters, digits, _, +, - and .")
                yield found


def listing(root, folders):
    return "".join(f"{source}\n" for source in sorted(find(root, folders)))


def found_by_meson(file):
    return file.with_name(file.name + ".found")


def in_ninja(path):
    """A path as build.ninja has it."""
    return re.sub(r"([$ :])", r"$\1", str(path))


def in_shell_in_ninja(word):
    return "'" + str(word).replace("'", "'\\''").replace("$", "$$") + "'"


def watch(root, file, folders):
    build = pathlib.Path(os.environ["MESON_BUILD_ROOT"])
    name = in_ninja(file.relative_to(build))
    text, found = re.subn(r"^(build build\.ninja\b[^:\n]*: REGENERATE_BUILD )", rf"\g<1>{name} ",
                          (build / "build.ninja").read_text(), flags=re.MULTILINE)
    if found != 1:
        sys.exit(f"sources.py: {build / 'build.ninja'}: expected one line 'build build.ninja: REGENERATE_BUILD ...', "
                 f"found {found}")
    command = [sys.executable, pathlib.Path(__file__).resolve(), "list", root, file, *folders]
    watched = [in_ninja(folder) for folder in visible_folders(root, folders)]
    text += (f"\n# Written by {pathlib.Path(__file__).name}.\n"
             "rule LIST_SOURCES\n"
             f" command = {' '.join(map(in_shell_in_ninja, command))}\n"
             " description = Listing sources\n"
             " generator = 1\n restat = 1\n\n"  # is not cleaned; counts as new when its text is
             f"build {name}: LIST_SOURCES | {' '.join(watched)}\n"
             # A folder that is gone is a change as well.
             f"build {' '.join(watched)}: phony\n")
    # Meson removes what ninja made and its own build.ninja does not name. With the time of the listing, because files
    # may have come since.
    shutil.copy2(found_by_meson(file), file)
    written = build / "build.ninja.with_sources"
    written.write_text(text)
    written.replace(build / "build.ninja")


def main():
    if len(sys.argv) < 5 or sys.argv[1] not in ("find", "watch", "list"):
        sys.exit(__doc__)
    root, file, folders = pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve(), sys.argv[4:]
    if sys.argv[1] == "watch":
        watch(root, file, folders)
        return
    text = listing(root, folders)
    if sys.argv[1] == "find":
        found_by_meson(file).write_text(text)
        sys.stdout.write(text)
    elif not file.exists() or file.read_text() != text:
        file.write_text(text)


if __name__ == "__main__":
    main()
