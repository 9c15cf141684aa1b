// The command line of a program: its options and commands, each with its help, its limits and where
// its value goes. A wrong one is answered by one sentence that names the word at fault and says
// what was expected.
//
// command_line.cc alone includes the parser, CLI11, whose header takes the compiler longer than a
// command's own source.
//
// Ownership: what options write to must outlive parse(). Errors: WrongUsage. Thread safety: none.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rondo {

// A command line that nothing can be done with. what() is a sentence without a name before it.
class WrongUsage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a command says beside its results, on standard error: "rondo: ..." of what failed, and
// "warning: ...". The text may hold names of files, and whatever is in a file: what a terminal
// would obey is written out.
void tell_error(const std::string& text);
void warn(const std::string& text);
// From now on warn() says nothing: another process finds the same, and says it.
void leave_warnings_to_others();

// A word as messages show it: not all of one that is as long as a page.
std::string shortened(const std::string& word);

// Says more of an option that was added. Each of these holds for every value of a list.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  // Both ends belong to it, and the help shows them. T: int, int64_t or double.
  template <class T>
  CommandOption& range(T least, T most);

  CommandOption& one_of(std::initializer_list<const char*> words);
  CommandOption& one_of(const std::vector<std::string>& words);
  CommandOption& one_of(std::initializer_list<int> numbers);

  // wrong() says what is wrong with a text; empty: nothing.
  CommandOption& check(const std::function<std::string(const std::string&)>& wrong);

  CommandOption& required();
  // Not together with another option, which was added before.
  CommandOption& excludes(const std::string& other);

  // A list's values may also stand in one word, with this between them.
  CommandOption& delimiter(char between);
  // A list takes one word each time the option is given, rather than all up to the next option.
  CommandOption& one_word();
  // A list takes one value and no more.
  CommandOption& one_value();

  // For the help: the value that the variable had when the option was added, a word for the kind of
  // value (limits follow it), a text in place of that.
  CommandOption& show_default();
  CommandOption& type_name(const std::string& name);
  CommandOption& value_text(const std::string& text);

 private:
  CLI::Option* option_;
};

// What the help of a command shows, for other forms of it (tools/command_line/manual.h).
struct CommandTable {
  struct Option {
    std::vector<std::string> names;    // "-h", "--help"; of an argument known by its place its name
    std::string value;                 // "INT in [1 - 256]"; empty: it is a flag
    std::vector<std::string> choices;  // all words that it takes; empty: others, too
    std::string help;
    bool required = false, many = false;
  };
  std::string name, description, footer;
  std::vector<Option> positionals, options;
  std::vector<CommandTable> commands;  // but hidden ones
};

// A program, or one of its commands.
class Command {
 public:
  explicit Command(CLI::App* app);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();

  // The command belongs to this one. A word that names a command chooses it, and what follows is
  // its own.
  Command& add_command(const std::string& name, const std::string& description);

  // `names`: "-n,--ranks", or "config" for an argument, known by its place; of several long names
  // the help shows the first, the others are what it was called before. T: int, int64_t,
  // uint64_t, double, std::string, or a vector of int or std::string.
  template <class T>
  CommandOption add_option(const std::string& names, T& value, const std::string& help);

  void add_flag(const std::string& name, bool& given, const std::string& help);
  void add_flag(const std::string& name, const std::function<void()>& when_given,
                const std::string& help);

  // One of its commands must be chosen; `what` says what they are: "a command".
  void require_command(const std::string& what);
  // For other programs: no help lists it.
  void hidden();
  // Ends the help.
  void footer(const std::string& text);
  // What the command does, once it is chosen and its line is right; returns the program's exit
  // code.
  void action(std::function<int()> run);

  // After parse(): whether the option was given.
  bool has(const std::string& option) const;
  // After parse(): does what was chosen, this or a command of its own.
  int run() const;

 private:
  friend class CommandLine;
  const Command& chosen() const;

  CLI::App* app_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::string commands_are_;
  std::function<int()> action_;
};

// A program's whole command line.
class CommandLine : public Command {
 public:
  // `version`: what --version prints; empty: there is no such option.
  CommandLine(const std::string& name, const std::string& description,
              const std::string& version = {});
  ~CommandLine();

  // False when the line asks for help or for the version, which are printed. Throws WrongUsage.
  bool parse(int argc, char** argv);

  CommandTable table() const;

  // Says on standard error what is wrong and where help is; the exit code for that, 2.
  int tell(const WrongUsage& wrong) const;

 private:
  explicit CommandLine(std::unique_ptr<CLI::App> app);

  std::unique_ptr<CLI::App> parser_;
};

}  // namespace rondo
