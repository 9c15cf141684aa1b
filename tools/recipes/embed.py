#!/usr/bin/env python3
"""embed.py OUTPUT RECIPE.toml...: a C++ source with the recipes' texts, for tools/command_line/recipes.cc."""

import pathlib
import sys


def main():
    output, *recipes = map(pathlib.Path, sys.argv[1:])
    rows = ""
    for path in sorted(recipes, key=lambda path: path.stem):
        text = path.read_text(encoding="utf-8")
        purpose = text.splitlines()[0]
        if not purpose.startswith("# ") or ')toml"' in text:
            sys.exit(f"{path}:1: is {purpose!r}, expected a comment that says what the recipe is for")
        rows += f'    {{"{path.stem}", R"toml({purpose[2:]})toml", R"toml({text})toml"}},\n'
    output.write_text('#include "tools/command_line/recipes.h"\n\nnamespace rondo {\n\n'
                      "std::span<const Recipe> recipes() {\n"
                      f"  static constexpr Recipe all[] = {{\n{rows}  }};\n"
                      "  return all;\n}\n\n}  // namespace rondo\n", encoding="utf-8")


if __name__ == "__main__":
    main()
