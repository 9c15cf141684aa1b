#!/usr/bin/env python3
"""embed.py OUTPUT PAGE.html: a C++ source with the page's text, for tools/serve/page.h."""

import pathlib
import sys


def main():
    output, page = map(pathlib.Path, sys.argv[1:])
    text = page.read_text(encoding="utf-8")
    if ')page"' in text:
        sys.exit(f'{page}: has )page", which ends a string of C++ here')
    # Compilers need not take longer strings than 65536 bytes; what stands one behind the other is one.
    pieces = [text[i:i + 8000] for i in range(0, len(text), 8000)]
    output.write_text('#include "tools/serve/page.h"\n\nnamespace rondo::serve {\n\nstd::string_view page() {\n  return '
                      + "\n      ".join(f'R"page({piece})page"' for piece in pieces)
                      + ";\n}\n\n}  // namespace rondo::serve\n", encoding="utf-8")


if __name__ == "__main__":
    main()
