#include "tools/usage_words.h"

#include <algorithm>
#include <regex>
#include <vector>

#include "engine/config/nearest.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

const CLI::App& chosen(const CLI::App& app) {
  const auto next = app.get_subcommands();
  return next.empty() ? app : chosen(*next.front());
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(c->get_name());
  }
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options()) {
    for (const std::string& name : o->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return text;
}

// The rest of a sentence about an unknown word.
std::string or_rather(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest_word(word, known);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

// Words that nothing takes; "--" is one where the command is not known yet.
std::vector<std::string> unexpected(const CLI::App& app) {
  std::vector<std::string> words = app.remaining(true);
  std::erase(words, "--");
  return words;
}

// The names of errors may be those of commands.
bool has_code(const CLI::ParseError& error, CLI::ExitCodes code) {
  return error.get_exit_code() == static_cast<int>(code);
}

const char* expected_by(const CLI::App& app, const std::string& option) {
  const CLI::Option* o = app.get_option_no_throw(option);
  const std::string type = o ? o->get_type_name() : "";
  if (type.starts_with("UINT")) return "a whole number of at least 0";
  if (type.starts_with("INT")) return "a whole number";
  if (type.starts_with("FLOAT")) return "a number";
  return "another value";
}

// 3600000.000000
std::string shortened(const std::string& number) {
  if (number.find('.') == std::string::npos) return number;
  return std::regex_replace(number, std::regex("\\.?0+$"), "");
}

// The parser knows no other way to its values than its own sentences.
std::string reworded(const CLI::App& app, const std::string& text) {
  std::smatch m;
  if (std::regex_match(text, m, std::regex("Could not convert: (\\S+) = (.*)"))) {
    return str(m[1].str(), " is '", m[2].str(), "', expected ", expected_by(app, m[1]));
  }
  if (std::regex_match(text, m, std::regex("(\\S+): Value (.*) not in range (\\S+) to (\\S+)"))) {
    return str(m[1].str(), " is '", m[2].str(), "', expected a number from ", shortened(m[3]),
               " to ", shortened(m[4]));
  }
  if (std::regex_match(text, m, std::regex("(\\S+): (.*) not in \\{(.*)\\}"))) {
    return str(m[1].str(), " is '", m[2].str(), "', expected one of ",
               std::regex_replace(m[3].str(), std::regex(","), ", "));
  }
  if (std::regex_match(text, m, std::regex("(\\S+): \\d+ required .* missing"))) {
    return str(m[1].str(), " needs a value");
  }
  return text;
}

// Whether it takes arguments beside options and commands.
bool takes_words(const CLI::App& command) {
  return !command.get_options([](const CLI::Option* o) { return o->get_positional(); }).empty();
}

}  // namespace

std::string chosen_command(const CLI::App& app) {
  const auto next = app.get_subcommands();
  return app.get_name() + (next.empty() ? "" : " " + chosen_command(*next.front()));
}

std::string describe_wrong_usage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen(app);
  const std::string of = &command == &app ? "" : str(" of '", chosen_command(app), "'");
  const std::vector<std::string> extra = unexpected(app), commands = commands_of(command);
  if (has_code(error, CLI::ExitCodes::ValidationError)) return reworded(command, error.what());
  const auto option =
      std::find_if(extra.begin(), extra.end(), [](const auto& w) { return w.starts_with("-"); });
  if (option != extra.end() && (commands.empty() || option == extra.begin())) {
    return str("unknown option '", *option, "'", of, or_rather(*option, options_of(command)));
  }
  if (!commands.empty()) {
    if (extra.empty()) {
      return str(of.empty() ? "expected a command: " : "expected what to prepare: ",
                 list_of(commands));
    }
    const std::string rather = or_rather(extra.front(), commands);
    if (rather.empty() && takes_words(command)) {
      return str("unexpected argument '", extra.front(), "'", of);
    }
    return str("unknown command '", extra.front(), "'", of,
               rather.empty() ? "; expected " + list_of(commands) : rather);
  }
  if (!extra.empty() && has_code(error, CLI::ExitCodes::ExtrasError)) {
    return str("unexpected argument '", extra.front(), "'", of);
  }
  return reworded(command, error.what());
}

}  // namespace rondo
