// rondo completion, rondo manual: what the shell and man(1) know of the commands.
#include <rondo/version.h>

#include <cstdio>
#include <map>
#include <memory>

#include "tools/command_line/manual.h"

namespace rondo {

void add_completion(CommandLine& program) {
  Command& command =
      program.add_command("completion", "Completion of commands and options in a shell");
  auto shell = std::make_shared<std::string>();
  command.add_option("shell", *shell, "whose script to write to standard output")
      .one_of({"bash", "zsh", "fish"})
      .required();
  command.footer(
      "\nExample:  rondo completion bash > ~/.local/share/bash-completion/completions/rondo\n"
      "          rondo completion zsh > ~/.zfunc/_rondo     (with fpath+=~/.zfunc before "
      "compinit)\n"
      "          rondo completion fish > ~/.config/fish/completions/rondo.fish\n");
  command.action([&program, shell] {
    static const std::map<std::string, Shell> shells = {
        {"bash", Shell::bash}, {"zsh", Shell::zsh}, {"fish", Shell::fish}};
    std::fputs(completion(program.table(), shells.at(*shell)).c_str(), stdout);
    return 0;
  });

  Command& manual = program.add_command("manual", "This help as a manual page, for man(1)");
  manual.hidden();
  manual.action([&program] {
    std::fputs(manual_page(program.table(), "rondo " RONDO_VERSION).c_str(), stdout);
    return 0;
  });
}

}  // namespace rondo
