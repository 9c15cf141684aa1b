#include "tools/command_line/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

// Where the column of explanations begins.
constexpr size_t help_column = 32;

const CLI::App& chosen_of(const CLI::App& app) {
  const auto next = app.get_subcommands();
  return next.empty() ? app : chosen_of(*next.front());
}

// "rondo prepare fsdd": the command as far as it was chosen.
std::string chosen_words(const CLI::App& app) {
  const auto next = app.get_subcommands();
  return app.get_name() + (next.empty() ? "" : " " + chosen_words(*next.front()));
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!c->get_group().empty()) names.push_back(c->get_name());  // hidden ones have none
  }
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options()) {
    if (!o->get_lnames().empty()) names.push_back("--" + o->get_lnames().front());
  }
  return names;
}

std::string stripped(const std::string& text) {
  const size_t first = text.find_first_not_of('\n'), last = text.find_last_not_of('\n');
  return first == std::string::npos ? "" : text.substr(first, last + 1 - first);
}

// "TEXT:{a,b}" has choices; of "INT:INT in [0 - 9]" the limits tell the kind as well.
CommandTable::Option table_of(const CLI::Option& o) {
  CommandTable::Option option;
  if (o.get_positional()) {
    option.names.push_back(o.get_name(true));
  } else {
    for (const std::string& name : o.get_snames()) option.names.push_back("-" + name);
    if (!o.get_lnames().empty()) option.names.push_back("--" + o.get_lnames().front());
  }
  option.help = o.get_description();
  option.required = o.get_required();
  option.many = o.get_expected_max() > 1;
  if (o.get_expected_max() == 0) return option;
  option.value = o.get_type_name();
  const size_t open = option.value.find(":{"), close = option.value.find('}');
  if (open != std::string::npos && close != std::string::npos) {
    std::string word;
    for (const char c : option.value.substr(open + 2, close - open - 1)) {
      if (c != ',' && c != '}') {
        word += c;
      } else if (!word.empty()) {
        option.choices.push_back(std::exchange(word, ""));
      }
    }
    option.value = option.value.substr(open + 1, close - open);
  } else if (const size_t colon = option.value.find(':'); colon != std::string::npos) {
    option.value = option.value.substr(colon + 1);
  }
  return option;
}

CommandTable table_of(const CLI::App& app) {
  CommandTable table{app.get_name(), app.get_description(), stripped(app.get_footer()), {}, {}, {}};
  for (const CLI::Option* o : app.get_options())
    (o->get_positional() ? table.positionals : table.options).push_back(table_of(*o));
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!c->get_group().empty()) table.commands.push_back(table_of(*c));
  }
  return table;
}

// Shows one long name for each option. Others are earlier names, kept for lines that have them.
class CurrentNames : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (is_positional || option->get_lnames().empty()) {
      return CLI::Formatter::make_option_name(option, is_positional);
    }
    std::string names;
    for (const std::string& name : option->get_snames()) names += "-" + name + ",";
    return names + "--" + option->get_lnames().front();
  }
};

// Whether it takes arguments beside options and commands.
bool takes_words(const CLI::App& command) {
  return !command.get_options([](const CLI::Option* o) { return o->get_positional(); }).empty();
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

const char* expected_by(const CLI::App& app, const std::string& option) {
  const CLI::Option* o = app.get_option_no_throw(option);
  if (o && o->get_expected_max() == 0) return "true or false";
  const std::string type = o ? o->get_type_name() : "";
  if (type.starts_with("UINT")) return "a whole number of at least 0";
  if (type.starts_with("INT")) return "a whole number";
  if (type.starts_with("FLOAT")) return "a number";
  return "another value";
}

// What the parser says of a value that it cannot take; it tells the option and the value in its own
// sentences alone.
std::string reworded(const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = error.what();
  // "Could not convert: OPTION = VALUE"
  const std::string not_converted = "Could not convert: ", is = " = ";
  const size_t equals = text.find(is);
  if (text.starts_with(not_converted) && equals != std::string::npos) {
    const std::string option = text.substr(not_converted.size(), equals - not_converted.size());
    return str(option, " is '", shortened(text.substr(equals + is.size())), "', expected ",
               expected_by(app, option));
  }
  // "OPTION: 1 required TYPE missing", "OPTION: At Most 1 required but received 2"
  const size_t colon = text.find(": ");
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && colon != std::string::npos) {
    const std::string option = text.substr(0, colon);
    if (text.ends_with(" missing")) return option + " needs a value";
    if (text.compare(colon, 11, ": At Most 1") == 0) {
      return str(option, " takes one value, not ", text.substr(text.rfind(' ') + 1));
    }
  }
  return text;
}

// `commands_are`: what the chosen command must have one of; empty: it needs none.
std::string describe(const CLI::App& app, const CLI::ParseError& error,
                     const std::string& commands_are) {
  const CLI::App& command = chosen_of(app);
  const std::string of = &command == &app ? "" : str(" of '", chosen_words(app), "'");
  const std::vector<std::string> extra = unexpected(app), commands = commands_of(command);
  const auto option =
      std::find_if(extra.begin(), extra.end(), [](const auto& w) { return w.starts_with("-"); });
  if (option != extra.end() && (commands.empty() || option == extra.begin())) {
    return str("unknown option '", shortened(*option), "'", of,
               or_rather(*option, options_of(command)));
  }
  if (!commands.empty()) {
    if (extra.empty()) {
      return commands_are.empty() ? reworded(command, error)
                                  : str("expected ", commands_are, ": ", list_of(commands));
    }
    const std::string rather = or_rather(extra.front(), commands);
    if (rather.empty() && takes_words(command)) {
      return str("unexpected argument '", shortened(extra.front()), "'", of);
    }
    return str("unknown command '", shortened(extra.front()), "'", of,
               rather.empty() ? "; expected " + list_of(commands) : rather);
  }
  if (!extra.empty() && dynamic_cast<const CLI::ExtrasError*>(&error)) {
    return str("unexpected argument '", shortened(extra.front()), "'", of);
  }
  return reworded(command, error);
}

std::string text_of(double number) {
  std::string text = std::to_string(number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string text_of(int64_t number) { return std::to_string(number); }
std::string text_of(int number) { return std::to_string(number); }
std::string text_of(const char* word) { return word; }
const std::string& text_of(const std::string& word) { return word; }

// `kind` is for the help.
void add_check(CLI::Option* option, const std::string& kind, const std::string& expected,
               const std::function<bool(const std::string&)>& right) {
  option->check(CLI::Validator(
      [=](const std::string& text) {
        if (right(text)) return std::string();
        throw WrongUsage(
            str(option->get_name(), " is '", shortened(text), "', expected ", expected));
      },
      kind));
}

template <class Item>
void add_members(CLI::Option* option, const std::vector<Item>& values) {
  std::string all;
  for (const Item& v : values) all += (all.empty() ? "" : ", ") + text_of(v);
  const CLI::Validator known = CLI::IsMember(values);
  add_check(option, known.get_description(), "one of " + all, [known](const std::string& text) {
    try {
      return known(text).empty();
    } catch (const CLI::ValidationError&) {
      return false;  // not even of the kind
    }
  });
}

}  // namespace

void tell_error(const std::string& text) {
  std::fprintf(stderr, "rondo: %s\n", printable(text, LineBreaks::kept).c_str());
}

namespace {
std::atomic<bool> others_warn = false;
}

void leave_warnings_to_others() { others_warn = true; }

void warn(const std::string& text) {
  if (others_warn) return;
  std::fprintf(stderr, "warning: %s\n", printable(text, LineBreaks::kept).c_str());
}

std::string shortened(const std::string& word) {
  constexpr size_t most = 200, shown = 60;
  return word.size() > most ? str(word.substr(0, shown), "... (", word.size(), " characters)")
                            : word;
}

template <class T>
CommandOption& CommandOption::range(T least, T most) {
  add_check(option_, CLI::Range(least, most).get_description(),
            str("a number from ", text_of(least), " to ", text_of(most)),
            [least, most](const std::string& text) {
              T number{};
              return CLI::detail::lexical_cast(text, number) && number >= least && number <= most;
            });
  return *this;
}
template CommandOption& CommandOption::range(int, int);
template CommandOption& CommandOption::range(int64_t, int64_t);
template CommandOption& CommandOption::range(double, double);

CommandOption& CommandOption::one_of(std::initializer_list<const char*> words) {
  add_members(option_, std::vector<const char*>(words));
  return *this;
}

CommandOption& CommandOption::one_of(const std::vector<std::string>& words) {
  add_members(option_, words);
  return *this;
}

CommandOption& CommandOption::one_of(std::initializer_list<int> numbers) {
  add_members(option_, std::vector<int>(numbers));
  return *this;
}

CommandOption& CommandOption::check(const std::function<std::string(const std::string&)>& wrong) {
  option_->check(CLI::Validator(
      [option = option_, wrong](const std::string& text) {
        const std::string what = wrong(text);
        if (what.empty()) return what;
        throw WrongUsage(str(option->get_name(), ": ", what));
      },
      ""));
  return *this;
}

CommandOption& CommandOption::required() {
  option_->required();
  return *this;
}

CommandOption& CommandOption::excludes(const std::string& other) {
  option_->excludes(other);
  return *this;
}

CommandOption& CommandOption::delimiter(char between) {
  option_->delimiter(between);
  return *this;
}

CommandOption& CommandOption::one_word() {
  option_->allow_extra_args(false);
  return *this;
}

CommandOption& CommandOption::one_value() {
  option_->expected(1);
  return *this;
}

CommandOption& CommandOption::show_default() {
  option_->capture_default_str();
  return *this;
}

CommandOption& CommandOption::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

CommandOption& CommandOption::value_text(const std::string& text) {
  option_->option_text(text);
  return *this;
}

Command::Command(CLI::App* app) : app_(app) {}
Command::~Command() = default;

Command& Command::add_command(const std::string& name, const std::string& description) {
  commands_.push_back(std::make_unique<Command>(app_->add_subcommand(name, description)));
  return *commands_.back();
}

template <class T>
CommandOption Command::add_option(const std::string& names, T& value, const std::string& help) {
  CLI::Option* option = app_->add_option(names, value, help);
  if constexpr (std::is_same_v<T, uint64_t>) {
    // The parser would take "-1" as the largest number, and a longer one as well.
    add_check(option, "", "a whole number of at least 0", [](const std::string& text) {
      uint64_t number = 0;
      const char* const end = text.data() + text.size();
      return std::from_chars(text.data(), end, number) == std::from_chars_result{end, std::errc{}};
    });
  }
  return CommandOption(option);
}
template CommandOption Command::add_option(const std::string&, int&, const std::string&);
template CommandOption Command::add_option(const std::string&, int64_t&, const std::string&);
template CommandOption Command::add_option(const std::string&, uint64_t&, const std::string&);
template CommandOption Command::add_option(const std::string&, double&, const std::string&);
template CommandOption Command::add_option(const std::string&, std::string&, const std::string&);
template CommandOption Command::add_option(const std::string&, std::vector<int>&,
                                           const std::string&);
template CommandOption Command::add_option(const std::string&, std::vector<std::string>&,
                                           const std::string&);

void Command::add_flag(const std::string& name, bool& given, const std::string& help) {
  app_->add_flag(name, given, help);
}

void Command::add_flag(const std::string& name, const std::function<void()>& when_given,
                       const std::string& help) {
  app_->add_flag_callback(name, when_given, help);
}

void Command::require_command(const std::string& what) {
  app_->require_subcommand(1);
  commands_are_ = what;
}

void Command::hidden() { app_->group(""); }
void Command::footer(const std::string& text) { app_->footer(text); }

void Command::action(std::function<int()> run) { action_ = std::move(run); }

bool Command::has(const std::string& option) const { return app_->count(option) != 0; }

const Command& Command::chosen() const {
  for (const auto& command : commands_) {
    if (command->app_->parsed()) return command->chosen();
  }
  return *this;
}

int Command::run() const {
  const auto& action = chosen().action_;
  return action ? action() : 0;
}

CommandLine::CommandLine(const std::string& name, const std::string& description,
                         const std::string& version)
    : CommandLine(std::make_unique<CLI::App>(description, name)) {
  if (!version.empty()) app_->set_version_flag("--version", version);
  app_->formatter(std::make_shared<CurrentNames>());
  app_->get_formatter()->column_width(help_column);
}

CommandLine::CommandLine(std::unique_ptr<CLI::App> parser)
    : Command(parser.get()), parser_(std::move(parser)) {}

CommandLine::~CommandLine() = default;

bool CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& e) {
    // CLI11 knows --help and --version as "errors" of code 0.
    if (e.get_exit_code() != 0) throw WrongUsage(describe(*app_, e, chosen().commands_are_));
    app_->exit(e);
    return false;
  }
}

CommandTable CommandLine::table() const { return table_of(*app_); }

int CommandLine::tell(const WrongUsage& wrong) const {
  std::fprintf(stderr, "%s: %s\n", app_->get_name().c_str(), wrong.what());
  std::fprintf(stderr, "'%s --help' shows what is expected\n", chosen_words(*app_).c_str());
  return 2;
}

}  // namespace rondo
