#include "tools/command_line/manual.h"

#include <functional>
#include <vector>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// ---- the manual page ----

// Text that roff takes for text.
std::string roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string usage_of(const CommandTable& c, const std::string& chain) {
  std::string text = "\\fB" + roff(chain) + "\\fR";
  if (!c.options.empty()) text += " [\\fIOPTIONS\\fR]";
  for (const CommandTable::Option& p : c.positionals) {
    const std::string name = "\\fI" + roff(p.names.front()) + "\\fR" + (p.many ? " ..." : "");
    text += " " + (p.required ? name : "[" + name + "]");
  }
  if (!c.commands.empty()) text += " \\fICOMMAND\\fR";
  return text;
}

void add_options(const std::vector<CommandTable::Option>& options, std::string& page) {
  for (const CommandTable::Option& o : options) {
    std::string names;
    for (const std::string& name : o.names)
      names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
    const bool kind = !o.value.empty() && o.names.front().starts_with('-');
    page += ".TP\n" + names + (kind ? " \\fI" + roff(o.value) + "\\fR" : "") + "\n" + roff(o.help) +
            "\n";
  }
}

void add_command(const CommandTable& c, const std::string& chain, std::string& page) {
  page +=
      ".SS " + roff(chain) + "\n" + roff(c.description) + ".\n.PP\n" + usage_of(c, chain) + "\n";
  add_options(c.positionals, page);
  add_options(c.options, page);
  if (!c.footer.empty()) page += ".PP\n.nf\n" + roff(c.footer) + "\n.fi\n";
  for (const CommandTable& inner : c.commands) add_command(inner, chain + " " + inner.name, page);
}

// ---- completion ----

// Within single quotes of any of the shells.
std::string quoted(std::string_view text, Shell shell) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += shell == Shell::fish ? "\\'" : "'\\''";
    } else if (c == '\\' && shell == Shell::fish) {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "'";
}

using Visit = std::function<void(const CommandTable&, const std::string& chain)>;
void visit(const CommandTable& c, const std::string& chain, const Visit& see) {
  see(c, chain);
  for (const CommandTable& inner : c.commands) visit(inner, chain + " " + inner.name, see);
}

std::string array_of(const std::vector<std::string>& words) {
  std::string text = "(";
  for (const std::string& w : words) text += (text.size() > 1 ? " " : "") + w;
  return text + ")";
}

// The patterns of a case that names all commands but the program.
std::string all_chains(const CommandTable& program, Shell shell) {
  std::string text;
  visit(program, program.name, [&](const CommandTable&, const std::string& chain) {
    if (chain == program.name) return;
    const char* const between = shell == Shell::fish ? " " : " | ";
    text += (text.empty() ? "" : between) + quoted(chain, shell);
  });
  return text;
}

// What bash and zsh have in common: from the words before the one at the cursor, `chain` and the
// arrays of what may stand there.
std::string tables_of(const CommandTable& program, Shell shell) {
  std::string chains, values;
  visit(program, program.name, [&](const CommandTable& c, const std::string& chain) {
    std::vector<std::string> options, commands;
    for (const CommandTable& inner : c.commands) commands.push_back(inner.name);
    for (const CommandTable::Option& o : c.options) {
      options.insert(options.end(), o.names.begin(), o.names.end());
      if (o.choices.empty()) continue;
      std::string patterns;
      for (const std::string& name : o.names)
        patterns += (patterns.empty() ? "" : " | ") + quoted(chain + " " + name, shell);
      values += "    " + patterns + ") choices=" + array_of(o.choices) + " ;;\n";
    }
    chains += "    " + quoted(chain, shell) + ") options=" + array_of(options) +
              " commands=" + array_of(commands) + " ;;\n";
  });
  return "  case \"$chain\" in\n" + chains + "  esac\n  case \"$chain $before\" in\n" + values +
         "  esac\n";
}

std::string walk_of(const CommandTable& program, Shell shell, const std::string& words) {
  return "  local chain=" + program.name + " word\n  for word in " + words +
         "; do\n    case \"$chain $word\" in\n      " + all_chains(program, shell) +
         ") chain=\"$chain $word\" ;;\n    esac\n  done\n";
}

std::string bash_completion(const CommandTable& program) {
  const std::string& name = program.name;
  return "# Completion of " + name + "'s words in bash; '" + name +
         " completion bash' writes it.\n_" + name +
         "() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local options=() commands=() choices=()\n" +
         walk_of(program, Shell::bash, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"") +
         tables_of(program, Shell::bash) +
         "  if ((${#choices[@]})); then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"${choices[*]}\" -- \"$current\")\n"
         "  elif [[ $current == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"${options[*]}\" -- \"$current\")\n"
         "  elif ((${#commands[@]})); then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"${commands[*]}\" -- \"$current\")\n"
         "  else\n"
         "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _" +
         name + " " + name + "\n";
}

std::string zsh_completion(const CommandTable& program) {
  const std::string& name = program.name;
  return "#compdef " + name + "\n# '" + name + " completion zsh' writes this.\n_" + name +
         "() {\n"
         "  local before=${words[CURRENT-1]}\n"
         "  local -a options commands choices\n" +
         walk_of(program, Shell::zsh, "${words[2,CURRENT-1]}") + tables_of(program, Shell::zsh) +
         "  if (( $#choices )); then\n"
         "    compadd -- $choices\n"
         "  elif [[ $PREFIX == -* ]]; then\n"
         "    compadd -- $options\n"
         "  elif (( $#commands )); then\n"
         "    compadd -- $commands\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "_" +
         name + " \"$@\"\n";
}

std::string fish_completion(const CommandTable& program) {
  const std::string& name = program.name;
  std::string text = "# '" + name + " completion fish' writes this.\nfunction __" + name +
                     "_at\n"
                     "  set -l chain " +
                     name +
                     "\n"
                     "  for word in (commandline -opc)[2..-1]\n"
                     "    switch \"$chain $word\"\n"
                     "      case " +
                     all_chains(program, Shell::fish) +
                     "\n"
                     "        set chain \"$chain $word\"\n"
                     "    end\n"
                     "  end\n"
                     "  test \"$chain\" = \"$argv[1]\"\n"
                     "end\n";
  visit(program, name, [&](const CommandTable& c, const std::string& chain) {
    const std::string begin =
        "complete -c " + name + " -n " +
        quoted(str("__", name, "_at ", quoted(chain, Shell::fish)), Shell::fish);
    for (const CommandTable& inner : c.commands) {
      text +=
          begin + " -f -a " + inner.name + " -d " + quoted(inner.description, Shell::fish) + "\n";
    }
    for (const CommandTable::Option& o : c.options) {
      text += begin;
      for (const std::string& n : o.names)
        text += n.starts_with("--") ? " -l " + n.substr(2) : " -s " + n.substr(1);
      if (!o.choices.empty()) {
        std::string words;
        for (const std::string& w : o.choices) words += (words.empty() ? "" : " ") + w;
        text += " -x -a " + quoted(words, Shell::fish);
      } else if (!o.value.empty()) {
        text += " -r";
      }
      text += " -d " + quoted(o.help, Shell::fish) + "\n";
    }
  });
  return text;
}

}  // namespace

std::string manual_page(const CommandTable& program, std::string_view version) {
  std::string page =
      str(".TH ", program.name, " 1 \"\" \"", roff(version), "\"\n.ad l\n.nh\n.SH NAME\n",
          program.name, " \\- ", roff(program.description), "\n.SH SYNOPSIS\n",
          usage_of(program, program.name), "\n.SH OPTIONS\n");
  add_options(program.options, page);
  page += ".SH COMMANDS\n";
  for (const CommandTable& c : program.commands) add_command(c, program.name + " " + c.name, page);
  page +=
      ".SH EXIT STATUS\n"
      ".TP\n0\nDone.\n"
      ".TP\n1\nFailed; a sentence on standard error says why.\n"
      ".TP\n2\nThe command line is wrong.\n"
      ".TP\n75\nAnother rank was lost or late; worth another try.\n"
      ".TP\n128 and more\nA signal ended it, whose number is the rest.\n";
  if (!program.footer.empty()) page += ".SH EXAMPLE\n.nf\n" + roff(program.footer) + "\n.fi\n";
  return page;
}

std::string completion(const CommandTable& program, Shell shell) {
  switch (shell) {
    case Shell::bash:
      return bash_completion(program);
    case Shell::zsh:
      return zsh_completion(program);
    case Shell::fish:
      return fish_completion(program);
  }
  return "";
}

}  // namespace rondo
