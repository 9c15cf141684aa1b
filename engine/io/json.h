// JSON as a tree of values: what files and lines of the program are read into and written from.
//
// The one place that knows the JSON library, whose header takes seconds to compile. Members of an
// object keep the order in which they were given. Not thread-safe; parsing and dumping are pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/base/error.h"

namespace rondo {

// What was wrong with a text, or with the use of a value. what() is a clause without a subject:
// "has no field 'step'".
class JsonError : public Error {
 public:
  enum class Kind {
    syntax,    // no JSON: `byte` says where, from 1
    range,     // a number that no double holds
    depth,     // nested too deeply
    repeated,  // an object has `name` twice
    type,      // the value is of another type, or has no such member
    utf8,      // a string to write is not UTF-8
  };
  JsonError(Kind what_kind, const std::string& what, size_t at_byte = 0, std::string member = "")
      : Error(what), kind(what_kind), byte(at_byte), name(std::move(member)) {}
  const Kind kind;
  const size_t byte;
  const std::string name;
};

struct JsonLimits {
  int depth = 64;             // objects and lists within each other
  bool unique_names = false;  // refuse repeated names; otherwise the last one counts
};

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  // What a tree is made of is compiled in one place, not wherever one is used.
  Json();
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  Json(std::nullptr_t);
  Json(bool value);
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value);
  Json(Array elements);
  Json(Object members);
  template <class T>
  requires std::is_floating_point_v<T> Json(T value) : Json(Number{static_cast<double>(value)}) {}
  template <class T>
  requires std::is_integral_v<T> && std::is_signed_v<T> Json(T value) : Json(Signed{value}) {}
  template <class T>
  requires std::is_integral_v<T> && std::is_unsigned_v<T> Json(T value) : Json(Unsigned{value}) {}
  template <class T>
  Json(const std::vector<T>& values);
  template <class T>
  Json(const std::map<std::string, T>& members);

  static Json array(std::initializer_list<Json> values = {});
  static Json object(std::initializer_list<Member> members = {});

  // Throws JsonError of kind syntax, range, depth or repeated.
  static Json parse(std::string_view text, const JsonLimits& limits = {});
  // In one line, or with so many spaces per level. Throws JsonError of kind utf8.
  std::string dump(int indent = -1) const;
  // In one line, with U+FFFD for what is not UTF-8.
  std::string dump_replacing() const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return is_signed() || is_unsigned(); }
  // An integer of at least 0.
  bool is_unsigned() const { return std::holds_alternative<uint64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // Whether it is this text.
  bool is(std::string_view text) const;
  // "null", "boolean", "number", "string", "array", "object"
  const char* type_name() const;

  // The value as a bool, a number that holds it, a string, a vector or a map from strings of
  // these. Throws JsonError of kind type for what it is not.
  template <class T>
  T get() const;

  // How many elements or members there are; 0 for anything but arrays and objects.
  size_t size() const;
  bool empty() const { return size() == 0; }
  const Array& elements() const;
  const Object& members() const;
  // Throws JsonError of kind type when there is none.
  const Json& at(std::string_view name) const;
  const Json& at(size_t index) const;
  // nullptr when there is none, or this is no object.
  const Json* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  // A new member is null; null becomes an object, or an array.
  Json& operator[](std::string_view name);
  void push_back(Json value);

 private:
  struct Number {
    double value;
  };
  struct Signed {
    int64_t value;
  };
  struct Unsigned {
    uint64_t value;
  };
  explicit Json(Number number);
  explicit Json(Signed number);
  explicit Json(Unsigned number);

  friend struct JsonReader;
  friend struct JsonPrinter;
  using Value =
      std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object>;

  bool is_signed() const { return std::holds_alternative<int64_t>(value_); }
  bool to_bool() const;
  double to_double() const;
  int64_t to_signed(int64_t least, int64_t most) const;
  uint64_t to_unsigned(uint64_t most) const;
  const std::string& to_string() const;

  Value value_;  // of integers those of at least 0 are unsigned
};

struct Json::Member {
  std::string name;
  Json value;
};

template <class T>
Json::Json(const std::vector<T>& values) : Json(Array(values.begin(), values.end())) {}

template <class T>
Json::Json(const std::map<std::string, T>& members) : Json(Object{}) {
  for (const auto& [name, value] : members) (*this)[name] = Json(value);
}

namespace json_detail {
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
}  // namespace json_detail

template <class T>
T Json::get() const {
  if constexpr (std::is_same_v<T, bool>) {
    return to_bool();
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(to_double());
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(to_signed(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(to_unsigned(std::numeric_limits<T>::max()));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return to_string();
  } else if constexpr (json_detail::is_vector<T>) {
    T all;
    for (const Json& value : elements()) all.push_back(value.get<typename T::value_type>());
    return all;
  } else {
    T all;
    for (const Member& m : members()) all[m.name] = m.value.get<typename T::mapped_type>();
    return all;
  }
}

}  // namespace rondo
