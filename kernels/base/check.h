// RONDO_CHECK and fail_input: how a contract that does not hold, or bad input, ends a call. What
// they throw is in kernels/base/error.h; this header is apart from it because every kernel source
// includes it, and <string> alone takes nvcc a second.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>

namespace rondo {
namespace detail {

// One thing that a message says: text, or a number. Not a template, and printed out of line,
// because every file has dozens of messages.
class Piece {
 public:
  Piece(std::string_view text) : kind_(Kind::text), text_(text) {}  // NOLINT: implicit by design
  Piece(const std::string& text);  // in error.cc: <iosfwd> only names the class
  Piece(const char* text) : Piece(std::string_view(text)) {}
  Piece(char c) : kind_(Kind::character), character_(c) {}
  Piece(bool b) : Piece(int{b}) {}
  Piece(int i) : Piece(static_cast<long long>(i)) {}
  Piece(long i) : Piece(static_cast<long long>(i)) {}
  Piece(long long i) : kind_(Kind::integer), integer_(i) {}
  Piece(unsigned u) : Piece(static_cast<unsigned long long>(u)) {}
  Piece(unsigned long u) : Piece(static_cast<unsigned long long>(u)) {}
  Piece(unsigned long long u) : kind_(Kind::natural), natural_(u) {}
  Piece(double x) : kind_(Kind::real), real_(x) {}
  Piece(float x) : Piece(static_cast<double>(x)) {}
  template <class T>
  requires(!std::is_same_v<std::remove_cv_t<T>, char>) Piece(T*)
  = delete;  // it would be a bool

  void append_to(std::string& out) const;
  size_t most_bytes() const { return kind_ == Kind::text ? text_.size() : 20; }

 private:
  enum class Kind : uint8_t { text, character, integer, natural, real };
  Kind kind_;
  union {
    std::string_view text_;
    char character_;
    long long integer_;
    unsigned long long natural_;
    double real_;
  };
};

std::string join(std::initializer_list<Piece> pieces);
[[noreturn]] void throw_input(std::initializer_list<Piece> pieces);
[[noreturn]] void throw_check(const char* condition, std::source_location where,
                              std::initializer_list<Piece> message);
[[noreturn]] void fail_check_plain(const char* file, int line, const char* condition);

// A template, for the macros: nvcc garbles braces that depend on no parameter of a template.
template <class... Args>
[[noreturn]] void fail_check(const char* condition, std::source_location where,
                             const Args&... message) {
  throw_check(condition, where, {message...});
}

}  // namespace detail

// Throws InputError with its arguments one after the other.
template <class... Args>
[[noreturn]] void fail_input(const Args&... args) {
  detail::throw_input({args...});
}

}  // namespace rondo

// RONDO_CHECK(rows >= 0, "rows is ", rows): a contract that does not hold throws Error.
#ifdef RONDO_ISA
// Files compiled once per instruction set use no templates (see kernels/base/cpu/simd.h).
#define RONDO_CHECK(condition, ...)                                      \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::rondo::detail::fail_check_plain(__FILE__, __LINE__, #condition); \
  } while (false)
#else
#define RONDO_CHECK(condition, ...)                                                            \
  do {                                                                                         \
    if (!(condition)) [[unlikely]]                                                             \
      ::rondo::detail::fail_check(#condition,                                                  \
                                  std::source_location::current() __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
#endif
