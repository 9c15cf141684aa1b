#include "engine/data/features/npy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "engine/io/safetensors.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo::data {
namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";
constexpr int64_t most_elements = int64_t{1} << 40;

// Reads the header's dictionary: only the literals that NumPy writes.
class Dictionary {
 public:
  Dictionary(std::string_view text, std::string_view name) : rest_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader out;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        element_type(out);
        descr = true;
      } else if (key == "fortran_order") {
        out.fortran_order = truth();
        order = true;
      } else if (key == "shape") {
        out.shape = tuple();
        shape = true;
      } else {
        fail(str("unknown key '", key, "'"));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!rest_.empty()) fail("text after the dictionary");
    if (!descr || !order || !shape) fail("descr, fortran_order or shape is missing");
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    fail_input(name_, ": its .npy header is malformed: ", why);
  }
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool accept(char c) {
    skip_space();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(str("'", c, "' expected"));
  }
  std::string_view quoted() {
    skip_space();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) fail("a quoted string expected");
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) fail("a string without its end");
    const std::string_view out = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return out;
  }
  void element_type(NpyHeader& out) {
    skip_space();
    if (!rest_.empty() && rest_[0] == '[')
      fail_input(name_, ": holds structured elements, expected numbers");
    const std::string_view type = quoted();
    const bool shaped =
        type.size() == 3 && (type[2] == '1' || type[2] == '2' || type[2] == '4' || type[2] == '8');
    const bool number = shaped && (type[1] == 'f' || type[1] == 'i' || type[1] == 'u') &&
                        !(type[1] == 'f' && type[2] == '1');
    const bool ordered =
        number && (type[0] == '<' || type[0] == '>' || (type[0] == '|' && type[2] == '1'));
    if (!ordered)
      fail_input(name_, ": holds elements of type '", type,
                 "', expected floats (<f2, <f4, <f8) or integers");
    out.big_endian = type[0] == '>';
    out.kind = type[1];
    out.item_bytes = type[2] - '0';
  }
  bool truth() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return word == "True";
    }
    fail("fortran_order is neither True nor False");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    int64_t elements = 1;
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t value = 0;
      size_t digits = 0;
      while (digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9') {
        value = value * 10 + (rest_[digits] - '0');
        if (value > most_elements) fail("a dimension is too large");
        ++digits;
      }
      if (digits == 0) fail("a dimension expected");
      rest_.remove_prefix(digits);
      if (value > 0 && elements > most_elements / value) fail("the shape is too large");
      elements *= value;
      out.push_back(value);
      if (out.size() > 32) fail("more than 32 dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  std::string_view rest_;
  std::string_view name_;
};

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

int64_t load_integer(const std::byte* p, const NpyHeader& h, std::string_view name) {
  const bool is_signed = h.kind == 'i';
  // Each widened by itself: "signed ? int32 : uint32" would be unsigned.
  switch (h.item_bytes) {
    case 1:
      return is_signed ? int64_t{load<int8_t>(p)} : int64_t{load<uint8_t>(p)};
    case 2:
      return is_signed ? int64_t{load<int16_t>(p)} : int64_t{load<uint16_t>(p)};
    case 4:
      return is_signed ? int64_t{load<int32_t>(p)} : int64_t{load<uint32_t>(p)};
    default:
      break;
  }
  if (!is_signed && load<uint64_t>(p) > uint64_t{std::numeric_limits<int64_t>::max()})
    fail_input(name, ": holds ", load<uint64_t>(p), ", which does not fit");
  return load<int64_t>(p);
}

// Calls `take(element)` with the bytes of each, little-endian, in the order of C.
template <class Take>
void for_each_element(std::span<const std::byte> file, const NpyHeader& h, std::string_view name,
                      const Take& take) {
  check_npy_size(file.size(), h, name);
  const std::byte* const data = file.data() + h.data_offset;
  const auto bytes = static_cast<size_t>(h.item_bytes);
  const int64_t elements = h.numel();
  std::vector<int64_t> at(h.shape.size());
  for (int64_t n = 0; n < elements; ++n) {
    int64_t place = n;
    if (h.fortran_order) {
      place = 0;
      for (size_t d = at.size(); d-- > 0;) place = place * h.shape[d] + at[d];
      for (size_t d = at.size(); d-- > 0 && ++at[d] == h.shape[d];) at[d] = 0;
    }
    std::byte element[8];
    std::memcpy(element, data + static_cast<size_t>(place) * bytes, bytes);
    if (h.big_endian) std::reverse(element, element + bytes);
    take(element);
  }
}

}  // namespace

void check_npy_size(uint64_t file_bytes, const NpyHeader& h, std::string_view name) {
  const uint64_t want = static_cast<uint64_t>(h.numel()) * static_cast<uint64_t>(h.item_bytes);
  const uint64_t have = file_bytes - std::min<uint64_t>(file_bytes, h.data_offset);
  if (have < want)
    fail_input(name, ": is truncated: its header announces ", want, " bytes, the file holds ",
               have);
  if (have > want)
    fail_input(name, ": holds ", have - want, " bytes more than its header announces");
}

int64_t NpyHeader::numel() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

NpyHeader parse_npy_header(std::span<const std::byte> start, std::string_view name) {
  if (start.empty()) fail_input(name, ": is empty, expected a .npy file");
  if (start.size() < 10 || std::memcmp(start.data(), npy_magic.data(), npy_magic.size()) != 0)
    fail_input(name, ": is not a .npy file");
  const auto version = std::to_integer<int>(start[6]);
  if (version < 1 || version > 3)
    fail_input(name, ": is a .npy file of version ", version, ", expected 1 to 3");
  size_t prefix = 10;
  uint64_t length = load<uint16_t>(start.data() + 8);
  if (version > 1) {
    if (start.size() < 12) fail_input(name, ": is truncated within its .npy header");
    prefix = 12;
    length = load<uint32_t>(start.data() + 8);
  }
  if (length > needed_npy_header_bytes - prefix)
    fail_input(name, ": its .npy header is ", length, " bytes long, expected at most 65536");
  if (prefix + length > start.size()) fail_input(name, ": is truncated within its .npy header");
  const std::string_view text(reinterpret_cast<const char*>(start.data()) + prefix,
                              static_cast<size_t>(length));
  NpyHeader out = Dictionary(text, name).parse();
  out.data_offset = prefix + length;
  return out;
}

std::vector<float> npy_floats(std::span<const std::byte> file, const NpyHeader& h,
                              std::string_view name) {
  std::vector<float> out(static_cast<size_t>(h.numel()));
  if (h.kind == 'f' && h.item_bytes == 4 && !h.big_endian && !h.fortran_order) {
    check_npy_size(file.size(), h, name);
    copy_bytes(out.data(), file.data() + h.data_offset, out.size() * 4);
    return out;
  }
  float* to = out.data();
  for_each_element(file, h, name, [&](const std::byte* p) {
    if (h.kind != 'f') {
      *to = static_cast<float>(load_integer(p, h, name));
    } else if (h.item_bytes == 8) {
      const auto columns = h.shape.empty() ? 1 : static_cast<size_t>(h.shape.back());
      *to = to_float(load<double>(p), static_cast<size_t>(to - out.data()), columns, name);
    } else if (h.item_bytes == 4) {
      *to = load<float>(p);
    } else {
      *to = half_to_float(load<uint16_t>(p));
    }
    ++to;
  });
  return out;
}

float to_float(double value, size_t index, size_t columns, std::string_view name) {
  if (std::isfinite(value) && std::abs(value) > double{std::numeric_limits<float>::max()})
    fail_input(name, ": frame ", index / columns, ", column ", index % columns, ": is ", value,
               ", which is beyond 32-bit floats");
  return static_cast<float>(value);
}

std::vector<int32_t> npy_integers(std::span<const std::byte> file, const NpyHeader& h,
                                  std::string_view name) {
  if (h.kind == 'f') fail_input(name, ": holds floats, expected integers");
  std::vector<int32_t> out;
  out.reserve(static_cast<size_t>(h.numel()));
  for_each_element(file, h, name, [&](const std::byte* p) {
    const int64_t wide = load_integer(p, h, name);
    if (wide < std::numeric_limits<int32_t>::min() || wide > std::numeric_limits<int32_t>::max())
      fail_input(name, ": holds ", wide, ", which does not fit into 32 bits");
    out.push_back(static_cast<int32_t>(wide));
  });
  return out;
}

std::string make_npy(std::span<const int64_t> shape, std::span<const float> values) {
  std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  int64_t elements = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    dictionary += (i ? ", " : "") + std::to_string(shape[i]);
    elements *= shape[i];
  }
  RONDO_CHECK(elements == static_cast<int64_t>(values.size()), "shape of ", elements,
              " elements, given ", values.size());
  dictionary += shape.size() == 1 ? ",), }" : "), }";
  while ((10 + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string out(npy_magic);
  out += '\x01';
  out += '\0';
  out += static_cast<char>(dictionary.size() & 0xff);
  out += static_cast<char>(dictionary.size() >> 8);
  out += dictionary;
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return out;
}

}  // namespace rondo::data
