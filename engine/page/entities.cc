// References in XML: to characters, to its own five entities, and to those that a document declares
// for itself (XML 1.0, section 4). Nothing is fetched, and little is expanded.
#include <algorithm>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "engine/page/xml.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo::page {
namespace {

constexpr size_t most_expanded = size_t{1} << 20;  // bytes, of a document
constexpr int most_within = 64;                    // entities in each other

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == ':' || c == '-' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
}

// "#x17F" or "#383" as UTF-8; nothing where it is no character.
std::optional<std::string> numbered(std::string_view name) {
  const bool hexadecimal = name.starts_with("#x");
  const std::string_view digits = name.substr(std::min<size_t>(hexadecimal ? 2 : 1, name.size()));
  if (digits.empty()) return std::nullopt;
  char32_t value = 0;
  for (const char c : digits) {
    const char lower = static_cast<char>(c | 32);
    char32_t digit = 16;
    if (c >= '0' && c <= '9') digit = static_cast<char32_t>(c - '0');
    if (hexadecimal && lower >= 'a' && lower <= 'f')
      digit = static_cast<char32_t>(lower - 'a' + 10);
    if (digit >= (hexadecimal ? 16u : 10u)) return std::nullopt;
    value = value * (hexadecimal ? 16 : 10) + digit;
    if (value > 0x10ffff) return std::nullopt;
  }
  if (value == 0 || (value >= 0xd800 && value < 0xe000)) return std::nullopt;
  return to_utf8(value);
}

std::optional<std::string> predefined(std::string_view name) {
  if (name == "lt") return "<";
  if (name == "gt") return ">";
  if (name == "amp") return "&";
  if (name == "quot") return "\"";
  if (name == "apos") return "'";
  return std::nullopt;
}

// The name of the reference that begins with the & at `at`; empty: there is none, as in "A & B".
std::string_view reference_at(std::string_view text, size_t at) {
  size_t end = at + 1;
  if (end < text.size() && text[end] == '#') ++end;
  while (end < text.size() && is_name_byte(text[end])) ++end;
  const bool ends = end < text.size() && text[end] == ';';
  return ends ? text.substr(at + 1, end - at - 1) : std::string_view();
}

// The text with what `resolve` says of each reference; where that is nothing, it stays.
template <class Resolve>
std::string with_references(std::string_view text, const Resolve& resolve) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find('&', at), text.size());
    out += text.substr(at, next - at);
    at = next;
    if (at == text.size()) break;
    const std::string_view name = reference_at(text, at);
    const std::optional<std::string> value = name.empty() ? std::nullopt : resolve(name);
    out += value ? *value : std::string(text.substr(at, name.empty() ? 1 : name.size() + 2));
    at += name.empty() ? 1 : name.size() + 2;
  }
  return out;
}

struct Entity {
  std::string literal;
  bool is_elsewhere = false;
  std::optional<std::string> expanded = {};
};

// What the document declares between the brackets of its DOCTYPE.
class Declarations {
 public:
  explicit Declarations(std::string_view doctype) : text_(doctype) {}

  void read(std::map<std::string, Entity, std::less<>>& entities) {
    while (at_ < text_.size()) {
      if (skip("<!--", "-->") || skip("<?", "?>")) continue;
      if (text_.substr(at_).starts_with("<!ENTITY")) {
        at_ += 8;
        read_entity(entities);
      } else if (const char c = text_[at_]; c == '"' || c == '\'') {
        quoted();
      } else {
        ++at_;
      }
    }
  }

 private:
  bool skip(std::string_view from, std::string_view to) {
    if (!text_.substr(at_).starts_with(from)) return false;
    at_ = text_.find(to, at_ + from.size());
    at_ = at_ == text_.npos ? text_.size() : at_ + to.size();
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  std::string_view word() {
    skip_space();
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_byte(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string_view quoted() {
    const char quote = text_[at_];
    const size_t begin = at_ + 1;
    const size_t end = std::min(text_.find(quote, begin), text_.size());
    at_ = std::min(end + 1, text_.size());
    return text_.substr(begin, end - begin);
  }
  void read_entity(std::map<std::string, Entity, std::less<>>& entities) {
    skip_space();
    // Those with a % are for declarations alone.
    if (at_ < text_.size() && text_[at_] == '%') return;
    const std::string name(word());
    skip_space();
    Entity entity;
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      entity.literal = with_references(quoted(), [](std::string_view reference) {
        return reference.starts_with('#') ? numbered(reference) : std::nullopt;
      });
    } else {
      entity.is_elsewhere = true;
    }
    if (!name.empty()) entities.try_emplace(name, std::move(entity));  // the first one holds
  }

  std::string_view text_;
  size_t at_ = 0;
};

class References {
 public:
  explicit References(const pugi::xml_document& document) {
    for (const pugi::xml_node& node : document.children())
      if (node.type() == pugi::node_doctype) Declarations(node.value()).read(entities_);
  }

  // Throws InputError: a clause.
  std::string expand(std::string_view text) { return expand(text, 0); }

 private:
  std::string expand(std::string_view text, int level) {
    return with_references(text, [&](std::string_view name) -> std::optional<std::string> {
      if (name.starts_with('#')) return numbered(name);
      if (auto own = predefined(name)) return own;
      return of_entity(name, level);
    });
  }

  const std::string& of_entity(std::string_view name, int level) {
    const std::string shown(name.substr(0, 40));
    const auto found = entities_.find(name);
    if (found == entities_.end())
      fail_input("refers to &", shown, "; which it does not declare, and XML has no such entity");
    Entity& entity = found->second;
    if (entity.is_elsewhere)
      fail_input("refers to &", shown, "; which is in another file: no other file is read");
    if (level >= most_within)
      fail_input("has entities more than ", most_within, " deep in each other, at &", shown, ";");
    if (!entity.expanded) {
      if (entity.literal.find('<') != std::string::npos)
        fail_input("has an entity with elements in it, &", shown, "; expected a text");
      entity.expanded = expand(entity.literal, level + 1);
    }
    expanded_ += entity.expanded->size();
    if (expanded_ > most_expanded)
      fail_input("has entities of more than ", most_expanded, " bytes once they are expanded");
    return *entity.expanded;
  }

  std::map<std::string, Entity, std::less<>> entities_;
  size_t expanded_ = 0;
};

}  // namespace

void expand_references(pugi::xml_document& document,
                       const std::function<void(ptrdiff_t, const std::string&)>& fail) {
  References references(document);
  struct Walker : pugi::xml_tree_walker {
    explicit Walker(References& r) : references(r) {}
    bool for_each(pugi::xml_node& node) override {
      at = node.offset_debug();
      const auto has_any = [](const char* text) {
        return std::string_view(text).find('&') != std::string_view::npos;
      };
      if (node.type() == pugi::node_pcdata && has_any(node.value()))
        node.set_value(references.expand(node.value()).c_str());
      for (pugi::xml_attribute& a : node.attributes())
        if (has_any(a.value())) a.set_value(references.expand(a.value()).c_str());
      return true;
    }
    References& references;
    ptrdiff_t at = 0;
  } walker(references);
  try {
    document.traverse(walker);
  } catch (const InputError& e) {
    fail(walker.at, e.what());
  }
}

}  // namespace rondo::page
