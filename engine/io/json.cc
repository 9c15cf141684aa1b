#include "engine/io/json.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/base/cpu/printable.h"

namespace rondo {
namespace {

using Kind = JsonError::Kind;
using Library = nlohmann::ordered_json;

[[noreturn]] void wrong_type(const Json& value, const char* expected) {
  throw JsonError(Kind::type, str("is of type ", value.type_name(), ", expected ", expected));
}

}  // namespace

// Builds the tree from the parser's events. Its stack is what the limit of depth bounds: trees are
// printed and freed by recursion.
struct JsonReader {
  using number_integer_t = Library::number_integer_t;
  using number_unsigned_t = Library::number_unsigned_t;
  using number_float_t = Library::number_float_t;
  using string_t = Library::string_t;
  using binary_t = Library::binary_t;

  const JsonLimits& limits;
  Json root;
  std::vector<Json*> open = {};
  Json* next = nullptr;  // the member whose value comes now

  bool null() { return put(Json()); }
  bool boolean(bool v) { return put(v); }
  bool number_integer(number_integer_t v) { return put(v); }
  bool number_unsigned(number_unsigned_t v) { return put(v); }
  bool number_float(number_float_t v, const string_t&) { return put(v); }
  bool string(string_t& v) { return put(std::move(v)); }
  bool binary(binary_t&) { return false; }  // not in JSON text
  bool start_object(size_t) { return begin(Json::object()); }
  bool start_array(size_t) { return begin(Json::array()); }
  bool end_array() { return end(); }
  bool end_object() {
    take_last_of_repeated(std::get<Json::Object>(open.back()->value_));
    return end();
  }
  bool key(string_t& name) {
    auto& members = std::get<Json::Object>(open.back()->value_);
    members.push_back({std::move(name), Json()});
    next = &members.back().value;
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& e) {
    constexpr int out_of_range = 406;
    if (e.id == out_of_range) throw JsonError(Kind::range, "holds a number that is out of range");
    throw JsonError(Kind::syntax, str("is not valid JSON near byte ", byte), byte);
  }

 private:
  Json* place(Json&& value) {
    Json* at = next ? next : &root;
    if (!next && !open.empty()) {
      auto& elements = std::get<Json::Array>(open.back()->value_);
      at = &elements.emplace_back();
    }
    next = nullptr;
    *at = std::move(value);
    return at;
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool begin(Json empty) {
    if (open.size() >= static_cast<size_t>(limits.depth)) {
      throw JsonError(Kind::depth, str("is nested more than ", limits.depth, " levels deep"));
    }
    open.push_back(place(std::move(empty)));
    return true;
  }
  bool end() {
    open.pop_back();
    return true;
  }
  void take_last_of_repeated(Json::Object& members) const {
    std::vector<size_t> order(members.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return members[a].name < members[b].name; });
    std::vector<bool> superseded(members.size());
    bool any = false;
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      const std::string& name = members[order[i]].name;
      if (name != members[order[i + 1]].name) continue;
      if (limits.unique_names) {
        throw JsonError(Kind::repeated, str("has ", quoted_start(name), " twice"), 0, name);
      }
      superseded[order[i]] = any = true;
    }
    if (!any) return;
    Json::Object kept;
    for (size_t i = 0; i < members.size(); ++i) {
      if (!superseded[i]) kept.push_back(std::move(members[i]));
    }
    members = std::move(kept);
  }
};

struct JsonPrinter {
  Library operator()(std::monostate) const { return nullptr; }
  template <class T>
  Library operator()(const T& v) const {
    return v;
  }
  Library operator()(const Json::Array& elements) const {
    Library all = Library::array();
    for (const Json& value : elements) all.push_back(std::visit(*this, value.value_));
    return all;
  }
  Library operator()(const Json::Object& members) const {
    Library all = Library::object();
    // Straight into its vector: by name it would look through all members for each.
    auto& object = all.get_ref<Library::object_t&>();
    object.reserve(members.size());
    for (const auto& [name, value] : members) {
      object.push_back({name, std::visit(*this, value.value_)});
    }
    return all;
  }
  static Library of(const Json& value) { return std::visit(JsonPrinter{}, value.value_); }
};

Json::Json() = default;
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json::Json(std::nullptr_t) {}
Json::Json(bool value) : value_(value) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(std::string_view value) : value_(std::string(value)) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(Array elements) : value_(std::move(elements)) {}
Json::Json(Object members) : value_(std::move(members)) {}
Json::Json(Number number) : value_(number.value) {}
Json::Json(Unsigned number) : value_(number.value) {}
Json::Json(Signed number) {
  if (number.value < 0) {
    value_ = number.value;
  } else {
    value_ = static_cast<uint64_t>(number.value);
  }
}

Json Json::array(std::initializer_list<Json> values) { return Json(Array(values)); }
Json Json::object(std::initializer_list<Member> members) { return Json(Object(members)); }

Json Json::parse(std::string_view text, const JsonLimits& limits) {
  JsonReader reader{limits, {}};
  Library::sax_parse(text.begin(), text.end(), &reader);
  return std::move(reader.root);
}

std::string Json::dump(int indent) const {
  try {
    return JsonPrinter::of(*this).dump(indent);
  } catch (const Library::exception&) {
    throw JsonError(Kind::utf8, "has a string that is not UTF-8");
  }
}

std::string Json::dump_replacing() const {
  return JsonPrinter::of(*this).dump(-1, ' ', false, Library::error_handler_t::replace);
}

bool Json::is(std::string_view text) const {
  const auto* own = std::get_if<std::string>(&value_);
  return own && *own == text;
}

const char* Json::type_name() const {
  if (is_null()) return "null";
  if (is_boolean()) return "boolean";
  if (is_number()) return "number";
  if (is_string()) return "string";
  return is_array() ? "array" : "object";
}

size_t Json::size() const {
  if (const auto* a = std::get_if<Array>(&value_)) return a->size();
  if (const auto* o = std::get_if<Object>(&value_)) return o->size();
  return 0;
}

const Json::Array& Json::elements() const {
  if (!is_array()) wrong_type(*this, "array");
  return std::get<Array>(value_);
}

const Json::Object& Json::members() const {
  if (!is_object()) wrong_type(*this, "object");
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view name) const {
  const auto* o = std::get_if<Object>(&value_);
  if (!o) return nullptr;
  const auto found =
      std::find_if(o->begin(), o->end(), [&](const Member& m) { return m.name == name; });
  return found == o->end() ? nullptr : &found->value;
}

const Json& Json::at(std::string_view name) const {
  if (!is_object()) wrong_type(*this, "object");
  if (const Json* found = find(name)) return *found;
  throw JsonError(Kind::type, str("has no field '", name, "'"));
}

const Json& Json::at(size_t index) const {
  const Array& all = elements();
  if (index < all.size()) return all[index];
  throw JsonError(Kind::type, str("has ", all.size(), " elements, expected more than ", index));
}

Json& Json::operator[](std::string_view name) {
  if (is_null()) value_ = Object{};
  if (!is_object()) wrong_type(*this, "object");
  if (const Json* found = find(name)) return const_cast<Json&>(*found);
  auto& members = std::get<Object>(value_);
  members.push_back({std::string(name), Json()});
  return members.back().value;
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array{};
  if (!is_array()) wrong_type(*this, "array");
  std::get<Array>(value_).push_back(std::move(value));
}

bool Json::to_bool() const {
  if (!is_boolean()) wrong_type(*this, "boolean");
  return std::get<bool>(value_);
}

double Json::to_double() const {
  if (const auto* v = std::get_if<double>(&value_)) return *v;
  if (const auto* v = std::get_if<int64_t>(&value_)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<uint64_t>(&value_)) return static_cast<double>(*v);
  wrong_type(*this, "number");
}

int64_t Json::to_signed(int64_t least, int64_t most) const {
  if (!is_integer()) wrong_type(*this, "integer");
  const auto* small = std::get_if<int64_t>(&value_);
  const auto* big = std::get_if<uint64_t>(&value_);
  const bool fits = small ? *small >= least : *big <= static_cast<uint64_t>(most);
  if (!fits)
    throw JsonError(Kind::type,
                    str("is ", dump(), ", expected an integer from ", least, " to ", most));
  return small ? *small : static_cast<int64_t>(*big);
}

uint64_t Json::to_unsigned(uint64_t most) const {
  const auto* v = std::get_if<uint64_t>(&value_);
  if (!v) wrong_type(*this, "an integer of at least 0");
  if (*v > most) throw JsonError(Kind::type, str("is ", *v, ", expected an integer up to ", most));
  return *v;
}

const std::string& Json::to_string() const {
  if (!is_string()) wrong_type(*this, "string");
  return std::get<std::string>(value_);
}

}  // namespace rondo
