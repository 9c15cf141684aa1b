#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "bench/cases/check/check.h"
#include "bench/cases/check/peaks.h"
#include "kernels/base/arithmetic.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/packed_host.h"

namespace rondo::check {
namespace {

constexpr size_t guard_bytes = 256;
constexpr uint8_t guard_byte = 0xa5;

uint64_t splitmix(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

double thread_time() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// f(T()) with the type that holds a dtype's numbers.
template <class F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f32:
      return f(float());
    case DType::bf16:
      return f(bf16());
    case DType::f64:
      return f(double());
    case DType::i32:
      return f(int32_t());
    case DType::i64:
      return f(int64_t());
    case DType::u8:
      return f(uint8_t());
  }
}

template <class T>
T to_stored(double v) {
  if constexpr (std::is_same_v<T, bf16>) {
    return bf16(static_cast<float>(v));
  } else if (std::is_integral_v<T> && std::isnan(v)) {
    return std::numeric_limits<T>::min();
  } else {
    return static_cast<T>(v);
  }
}

void put(void* base, DType dtype, int64_t i, double v) {
  with_type(dtype, [&](auto type) {
    static_cast<decltype(type)*>(base)[i] = to_stored<decltype(type)>(v);
  });
}

// Bytes [0, filled) so often that `bytes` of them are full.
void repeat(uint8_t* at, size_t filled, size_t bytes) {
  while (filled > 0 && filled < bytes) {
    const size_t more = std::min(filled, bytes - filled);
    std::memcpy(at + filled, at, more);
    filled += more;
  }
}

// Drawing takes ten times as long as copying: large arrays repeat so many numbers. It is a prime,
// so that no two rows or planes are alike.
constexpr int64_t most_drawn = 65521;

// Neither labels, offsets and the like nor workspaces.
bool is_operand(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f64;
}

}  // namespace

Tolerance Tolerance::ulps(DType dtype, double ulps, double scale) {
  const double epsilon = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  return {ulps * epsilon * scale, ulps * epsilon};
}

// A sum of n terms is rounded n times. Let u be the unit roundoff and d the terms' standard
// deviation. Each rounding error is uniform within u times the power of two below the partial sum:
// in the mean square 0.74 u / sqrt(3) times the partial sum. The partial sums are a random walk, so
// the error is 0.74 n u d / sqrt(3) times the integral of one Brownian motion along another. That
// is no normal variable, for some walks stay far from 0: its characteristic function is
// 1 / sqrt(cosh), and it exceeds x with a probability of 0.72 exp(-pi x / 2) / sqrt(x). Of 3
// million simulated f32 sums of 240 products 37 exceeded 0.9 n u; by this law it would be 43. A
// case compares thousands of values, so the bound is 2 n u for products (d = 1/3): 5e-11. In f64
// the reference rounds as well. The result's own rounding to bf16 may go either way, which is one
// ulp, or two of its half ulps.
Tolerance Tolerance::sum(double terms, DType out, double deviation, double added) {
  const double n = terms + 1;
  const DType type = out == DType::f64 ? DType::f64 : DType::f32;
  Tolerance t =
      ulps(type, (type == DType::f64 ? 12 : 6) * std::sqrt(n), std::sqrt(n) * deviation + added);
  t.relative = ulps(out, out == DType::bf16 ? 2 : 4).relative;
  return t;
}

bool matches(double got, double want, const Tolerance& t) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= t.absolute + t.relative * std::abs(want);
}

// One allocation: guard, payload, guard. The host image is what was copied in, or comes back; of
// a workspace, its guards alone.
// None on the simulated device, which watches the ends of allocations itself: guards of ours would
// hide reads past an end from AddressSanitizer and from the instrumented build.
struct Case::Block {
  Buffer memory;
  std::vector<uint8_t> host;
  size_t payload = 0, guard = guard_bytes;
  TensorView view;
  std::string name;  // compared when set
  Tolerance tolerance;
  int64_t planes = 1, plane_elements = 0, live_elements = 0;  // compared part of each plane

  uint8_t* host_payload() { return host.data() + guard; }
  size_t bytes() const { return payload + 2 * guard; }
  // Ahead of the payload, and after it.
  bool guards_untouched() const {
    const auto untouched = [](uint8_t byte) { return byte == guard_byte; };
    const auto size = static_cast<std::ptrdiff_t>(guard);
    return std::all_of(host.begin(), host.begin() + size, untouched) &&
           std::all_of(host.end() - size, host.end(), untouched);
  }
};

Case::Case(const Context& context, uint64_t seed, const Variant* variant, int repeats)
    : context_(context),
      state_(seed * 0x2545f4914f6cdd1dull + 1),
      variant_(variant),
      repeats_(repeats) {}

// Copies may still be queued that read the host images. A failure has been reported by then, or
// the case was given up.
Case::~Case() {
  try {
    context_.stream->synchronize();
  } catch (const Error&) {
  }
}

int64_t Case::random(int64_t n) {
  RONDO_CHECK(n > 0, "random(", n, ")");
  return static_cast<int64_t>(splitmix(state_) % static_cast<uint64_t>(n));
}

double Case::random_real(double low, double high) {
  return low + (high - low) * static_cast<double>(splitmix(state_) >> 11) * 0x1p-53;
}

Case::Block& Case::add_block(size_t bytes, std::initializer_list<int64_t> dims, DType dtype,
                             Image image) {
  auto block = std::make_unique<Block>();
  block->payload = bytes;
  if (weighs_) {
    // No memory, but an address that is no other block's.
    block->view = TensorView(reinterpret_cast<void*>(weighed_ + guard_bytes), dtype, dims);
    weighed_ += image == Image::all ? bytes : 0;
    weighed_ = round_up(weighed_ + 1, guard_bytes);
    blocks_.push_back(std::move(block));
    return *blocks_.back();
  }
  // (A null pointer would be taken for an absent argument.)
  if (context_.backend == Backend::sim && bytes > 0) block->guard = 0;
  block->host.assign((image == Image::all ? bytes : 0) + 2 * block->guard, guard_byte);
  block->memory = Buffer(*context_.device, block->bytes(), "checkop case");
  block->view = TensorView(static_cast<uint8_t*>(block->memory.data()) + block->guard, dtype, dims);
  block->plane_elements = block->live_elements = block->view.numel();
  blocks_.push_back(std::move(block));
  return *blocks_.back();
}

void Case::send(Block& block) {
  context_.device->copy(*context_.stream, block.memory.data(), block.host.data(),
                        block.host.size());
}

// Values in so many elements of each plane, NaN after them.
TensorView Case::filled(Block& block, Fill fill, int64_t live_elements) {
  if (weighs_) return block.view;
  const int64_t planes = block.planes, plane_elements = block.plane_elements;
  const size_t element = size_of(block.view.dtype);
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements) * element; };
  const int64_t live = planes * live_elements, drawn = std::min(live, most_drawn);
  std::vector<uint8_t> values(bytes(drawn)), nothing(bytes(1));
  put(nothing.data(), block.view.dtype, 0, std::numeric_limits<double>::quiet_NaN());
  for (int64_t i = 0; i < drawn; ++i) {
    const double v = fill.kind == Fill::zeros ? 0 : random_real(fill.low, fill.high);
    put(values.data(), block.view.dtype, i, v);
  }
  uint8_t* at = block.host_payload();
  int64_t next = 0;  // of the values drawn
  for (int64_t p = 0; p < planes; ++p, at += bytes(plane_elements)) {
    for (int64_t i = 0; i < live_elements;) {
      const int64_t n = std::min(live_elements - i, drawn - next);
      std::memcpy(at + bytes(i), values.data() + bytes(next), bytes(n));
      i += n;
      next = (next + n) % drawn;
    }
    if (live_elements == plane_elements) continue;
    std::memcpy(at + bytes(live_elements), nothing.data(), element);
    repeat(at + bytes(live_elements), element, bytes(plane_elements - live_elements));
  }
  send(block);
  return block.view;
}

// The last block, which is an output.
TensorView Case::compared(std::string name, Tolerance tolerance) {
  blocks_.back()->name = std::move(name);
  blocks_.back()->tolerance = tolerance;
  return blocks_.back()->view;
}

TensorView Case::input(std::initializer_list<int64_t> dims, DType dtype, Fill fill) {
  Block& b = add_block(TensorView(nullptr, dtype, dims).bytes(), dims, dtype);
  return filled(b, fill, b.live_elements);
}

TensorView Case::input_values(std::initializer_list<int64_t> dims, DType dtype,
                              const std::vector<double>& values) {
  Block& b = add_block(TensorView(nullptr, dtype, dims).bytes(), dims, dtype);
  RONDO_CHECK(static_cast<int64_t>(values.size()) == b.view.numel(), values.size(), " values for ",
              b.view.numel(), " elements");
  if (weighs_) return b.view;
  for (size_t i = 0; i < values.size(); ++i) {
    put(b.host_payload(), dtype, static_cast<int64_t>(i), values[i]);
  }
  send(b);
  return b.view;
}

TensorView Case::output(std::string name, std::initializer_list<int64_t> dims, DType dtype,
                        Tolerance tolerance) {
  filled(add_block(TensorView(nullptr, dtype, dims).bytes(), dims, dtype), {}, 0);
  return compared(std::move(name), tolerance);
}

TensorView Case::in_out(std::string name, std::initializer_list<int64_t> dims, DType dtype,
                        Tolerance tolerance, Fill fill) {
  input(dims, dtype, fill);
  return compared(std::move(name), tolerance);
}

TensorView Case::in_out_values(std::string name, std::initializer_list<int64_t> dims, DType dtype,
                               Tolerance tolerance, const std::vector<double>& values) {
  input_values(dims, dtype, values);
  return compared(std::move(name), tolerance);
}

DType Case::dtype() const {
  const Block* first = nullptr;
  for (const auto& b : blocks_) {
    if (!is_operand(b->view.dtype)) continue;
    if (first == nullptr) first = b.get();
    if (b->view.numel() >= 1000) return b->view.dtype;
  }
  return first ? first->view.dtype : DType::f32;
}

std::string Case::operands_json() const {
  std::string text;
  for (const auto& b : blocks_) {
    if (!is_operand(b->view.dtype)) continue;
    std::string sizes;
    for (int i = 0; i < b->view.rank; ++i) {
      sizes += str(i ? "," : "", b->view.dims[static_cast<size_t>(i)]);
    }
    text += str(text.empty() ? "" : ",", "\"", name_of(b->view.dtype), "[", sizes, "]\"");
  }
  return "[" + text + "]";
}

// Never on the host: it may be large, and every case of some op has one.
TensorView Case::workspace(size_t bytes) {
  Block& b = add_block(bytes, {static_cast<int64_t>(bytes)}, DType::u8, Image::guards);
  if (weighs_) return b.view;
  Device& device = *context_.device;
  if (b.guard > 0) device.fill_bytes(*context_.stream, b.memory.data(), guard_byte, b.bytes());
  device.fill_bytes(*context_.stream, b.view.data, 0xff, bytes);  // NaN as floats
  return b.view;
}

template <class T>
const T* Case::copied(const std::vector<T>& values, DType dtype) {
  const size_t bytes = values.size() * sizeof(T);
  Block& b = add_block(bytes, {static_cast<int64_t>(values.size())}, dtype);
  if (!weighs_) {
    copy_bytes(b.host_payload(), values.data(), bytes);
    send(b);
  }
  return static_cast<const T*>(b.view.data);
}
const int32_t* Case::ints(const std::vector<int32_t>& values) { return copied(values, DType::i32); }
const uint64_t* Case::longs(const std::vector<uint64_t>& values) {
  return copied(values, DType::i64);
}

PackedView Case::packed(std::vector<int32_t> lengths, int32_t spare_rows, int32_t spare_sequences) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  PackedHost host = build_packed(lengths);
  const auto [rows, frames, sequences] = host.extent;
  PackedView v;
  v.capacity = {rows + spare_rows, frames + (spare_rows ? 1 : 0), sequences + spare_sequences};
  // What lies past the extent must never be used: make it absurd.
  constexpr int32_t poison = 0x3fffffff;
  host.lengths.resize(static_cast<size_t>(v.capacity.sequences), poison);
  host.batch_sizes.resize(static_cast<size_t>(v.capacity.frames), poison);
  host.row_offsets.resize(static_cast<size_t>(v.capacity.frames) + 1, poison);
  host.row_frame.resize(static_cast<size_t>(v.capacity.rows), poison);
  host.keys.clear();
  host.first_frame.clear();
  for (int32_t n = 0; n < v.capacity.sequences; ++n) {
    host.keys.push_back(static_cast<uint64_t>(random(1 << 30)));
    host.first_frame.push_back(static_cast<int32_t>(random(100)));
  }
  v.extent = reinterpret_cast<const PackedExtent*>(ints({rows, frames, sequences}));
  v.lengths = ints(host.lengths);
  v.batch_sizes = ints(host.batch_sizes);
  v.row_offsets = ints(host.row_offsets);
  v.row_frame = ints(host.row_frame);
  v.keys = longs(host.keys);
  v.first_frame = ints(host.first_frame);
  extents_.emplace_back(v.extent, rows);
  return v;
}

int64_t Case::extent_rows(const PackedView& layout) const {
  for (const auto& [extent, rows] : extents_) {
    if (extent == layout.extent) return rows;
  }
  RONDO_CHECK(false, "layout is not of this case");
}

Case::Block& Case::add_planes(int64_t planes, const PackedView& layout, int64_t cols, DType dtype) {
  const auto bytes = static_cast<size_t>(planes * layout.capacity.rows * cols) * size_of(dtype);
  Block& b = add_block(bytes, {planes, layout.capacity.rows, cols}, dtype);
  b.planes = planes;
  b.plane_elements = layout.capacity.rows * cols;
  b.live_elements = extent_rows(layout) * cols;
  return b;
}

TensorView Case::planes_input(int64_t planes, const PackedView& layout, int64_t cols, DType dtype,
                              Fill fill) {
  Block& b = add_planes(planes, layout, cols, dtype);
  return filled(b, fill, b.live_elements);
}

TensorView Case::rows_input(const PackedView& layout, int64_t cols, DType dtype, Fill fill) {
  return {planes_input(1, layout, cols, dtype, fill).data, dtype, {layout.capacity.rows, cols}};
}

TensorView Case::planes_output(std::string name, int64_t planes, const PackedView& layout,
                               int64_t cols, DType dtype, Tolerance tolerance) {
  filled(add_planes(planes, layout, cols, dtype), {}, 0);
  return compared(std::move(name), tolerance);
}

TensorView Case::rows_output(std::string name, const PackedView& layout, int64_t cols, DType dtype,
                             Tolerance tolerance) {
  const TensorView v = planes_output(std::move(name), 1, layout, cols, dtype, tolerance);
  return {v.data, dtype, {layout.capacity.rows, cols}};
}

void Case::run_erased(const char* op, const void* args) {
  if (weighs_) return;
  RONDO_CHECK(std::strcmp(op, variant_->op) == 0, "case runs ", op, ", the variant is of ",
              variant_->op);
  accepted_ = !variant_->accepts || variant_->accepts(context_, args);
  if (accepted_ && !among_.empty()) {
    accepted_ = default_variant(among_, chooser_of(op), context_, args) == variant_;
  }
  if (!accepted_) return;
  try {
    for (int i = 0; i < repeats_; ++i) run_timed(args);
    if (time_for_ <= 0) return;
    const auto runs_in = [](double seconds, double once) {
      return static_cast<int>(std::clamp(seconds / std::max(once, 1e-7), 3.0, 2000.0));
    };
    const int runs = runs_in(time_for_, seconds_.back());
    seconds_.clear();
    thread_seconds_.clear();
    for (int i = 0; i < runs; ++i) run_timed(args);
    if (device() != DeviceKind::cuda) return;
    run_in_a_row(args, runs_in(time_for_, *std::min_element(seconds_.begin(), seconds_.end())));
  } catch (const Declined&) {
    accepted_ = false;
  }
}

void Case::run_timed(const void* args) {
  const double thread_start = thread_time();
  const double start = now_seconds();
  variant_->run(context_, args);
  context_.stream->synchronize();
  seconds_.push_back(now_seconds() - start);
  thread_seconds_.push_back(thread_time() - thread_start);
}

void Case::run_in_a_row(const void* args, int runs) {
  const double start = now_seconds();
  for (int i = 0; i < runs; ++i) variant_->run(context_, args);
  context_.stream->synchronize();
  seconds_in_a_row_ = (now_seconds() - start) / runs;
}

std::vector<Case::Output> Case::collect(std::string* guard_error) {
  std::vector<Output> outputs;
  for (auto& b : blocks_) {
    const auto fetch = [&](size_t to, size_t from, size_t bytes) {
      context_.device->copy(*context_.stream, b->host.data() + to,
                            static_cast<uint8_t*>(b->memory.data()) + from, bytes);
    };
    if (!b->name.empty()) {
      fetch(0, 0, b->bytes());
    } else if (b->guard > 0) {
      fetch(0, 0, b->guard);
      fetch(b->host.size() - b->guard, b->guard + b->payload, b->guard);
    }
  }
  context_.stream->synchronize();
  for (auto& b : blocks_) {
    if (!b->guards_untouched()) {
      *guard_error = str("wrote outside ", b->name.empty() ? "an input or the workspace" : b->name);
    }
    if (b->name.empty()) continue;
    Output out{b->name, b->tolerance, {}, {}, {}};
    for (int i = 0; i < b->view.rank; ++i) out.shape += str(i ? "x" : "", b->view.dim(i));
    const size_t element = size_of(b->view.dtype);
    out.values.reserve(static_cast<size_t>(b->planes * b->live_elements));
    for (int64_t p = 0; p < b->planes; ++p) {
      const int64_t first = p * b->plane_elements;
      with_type(b->view.dtype, [&](auto type) {
        const auto* const live = reinterpret_cast<const decltype(type)*>(b->host_payload()) + first;
        for (int64_t i = 0; i < b->live_elements; ++i) {
          out.values.push_back(static_cast<double>(live[i]));
        }
      });
      const uint8_t* bytes = b->host_payload() + static_cast<size_t>(first) * element;
      out.bytes.insert(out.bytes.end(), bytes,
                       bytes + static_cast<size_t>(b->live_elements) * element);
    }
    outputs.push_back(std::move(out));
  }
  return outputs;
}

}  // namespace rondo::check
