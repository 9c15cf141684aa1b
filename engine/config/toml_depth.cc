#include "engine/config/toml_depth.h"

#include <algorithm>
#include <string>

#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Goes through the text once; strings and comments are passed over.
class DepthCheck {
 public:
  DepthCheck(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        pass_string(c);
        continue;
      }
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      take(c);
      ++at_;
    }
  }

 private:
  void take(char c) {
    switch (c) {
      case '.':
        if (++parts_ > most_toml_depth) fail("a key has", "parts");
        return;
      case '[':
      case '{':
        if (++brackets_ > most_toml_depth) fail("there are", "brackets within each other");
        return begin_key(at_ + 1);
      case ']':
      case '}':
        brackets_ -= brackets_ > 0;
        return begin_key(at_ + 1);
      case '\n':
        ++line_;
        [[fallthrough]];
      case '=':
      case ',':
        return begin_key(at_ + 1);
      default:
        return;
    }
  }

  void begin_key(size_t at) {
    parts_ = 1;
    key_ = at;
  }

  // In three quotes it may have lines; otherwise it ends with its own.
  void pass_string(char quote) {
    const std::string three(3, quote);
    const bool long_string = text_.substr(at_).starts_with(three);
    for (at_ += long_string ? 3 : 1; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        if (!long_string) return;
        ++line_;
      }
      if (c == '\\' && quote == '"' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n') {
        ++at_;
      } else if (long_string ? text_.substr(at_).starts_with(three) : c == quote) {
        at_ += long_string ? 3 : 1;
        return;
      }
    }
  }

  [[noreturn]] void fail(const char* what, const char* of) const {
    const std::string_view key = text_.substr(key_, std::min<size_t>(at_ - key_ + 1, 40));
    const size_t begin = std::min(key.find_first_not_of(" \t"), key.size());
    fail_input(
        name_, ":", line_, ": ", what, " more than ", most_toml_depth, " ", of,
        key.size() > begin ? str(": '", printable(key.substr(begin)), "...'") : std::string(),
        "; expected at most ", most_toml_depth);
  }

  const std::string_view text_, name_;
  size_t at_ = 0, line_ = 1, parts_ = 1, key_ = 0, brackets_ = 0;
};

}  // namespace

void require_shallow_toml(std::string_view text, std::string_view name) {
  DepthCheck(text, name).run();
}

}  // namespace rondo
