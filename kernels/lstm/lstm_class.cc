#include "kernels/lstm/lstm_class.h"

#include <bit>
#include <charconv>
#include <sstream>

#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr int64_t largest_size = 1 << 20;  // of what is read

// The number behind a letter: "h512".
bool read_size(std::string_view word, char letter, int64_t* size) {
  if (word.empty() || word.front() != letter) return false;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data() + 1, end, *size);
  return error == std::errc{} && rest == end && 1 <= *size && *size <= largest_size;
}

}  // namespace

std::string LstmClass::text() const {
  const std::string projection = dims.projection ? str(" p", dims.projection) : "";
  return str(name_of(compute), " h", dims.hidden, projection, " d", dims.directions, " n",
             sequences);
}

std::optional<LstmClass> LstmClass::parse(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string dtype, hidden, next, sequences;
  if (!(words >> dtype >> hidden >> next)) return {};
  LstmClass c;
  if (read_size(next, 'p', &c.dims.projection) && !(words >> next)) return {};
  int64_t directions = 0;
  if (!(words >> sequences) || !read_size(hidden, 'h', &c.dims.hidden) ||
      !read_size(next, 'd', &directions) || !read_size(sequences, 'n', &c.sequences)) {
    return {};
  }
  c.compute = dtype == name_of(DType::bf16) ? DType::bf16 : DType::f32;
  c.dims.directions = static_cast<int>(directions);
  const bool is_text = directions <= 2 && c.text() == text &&
                       std::has_single_bit(static_cast<uint64_t>(c.sequences));
  return is_text ? std::optional(c) : std::nullopt;
}

LstmClass lstm_class(DType compute, const LstmDims& dims, int64_t sequences) {
  LstmClass c;
  c.compute = compute;
  c.dims = dims;
  c.dims.input = 0;
  c.sequences = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(sequences)));
  return c;
}

namespace {

DType compute_of(const LstmForwardArgs& a) { return a.x.dtype; }
DType compute_of(const LstmBackwardArgs& a) { return a.dy.dtype; }

}  // namespace

template <class Args>
std::string lstm_class_of(const void* args) {
  const auto& a = *static_cast<const Args*>(args);
  if (a.run != LstmRun::both) return {};
  return lstm_class(compute_of(a), a.dims, a.layout.capacity.sequences).text();
}
template std::string lstm_class_of<LstmForwardArgs>(const void*);
template std::string lstm_class_of<LstmBackwardArgs>(const void*);

}  // namespace rondo
