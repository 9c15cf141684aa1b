#include "kernels/ctc/ctc_padded.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/device.h"
#include "kernels/base/error.h"
#include "kernels/base/packed_host.h"
#include "kernels/ctc/ctc_gpu.h"

namespace rondo {
namespace {

constexpr size_t alignment = 64;
// More than any memory holds, and few enough for the bytes of all scratch arrays to be counted.
constexpr double most_elements = double{int64_t{1} << 50};

struct Totals {
  PackedCapacity capacity;
  int64_t labels = 0;
  int32_t longest_labels = 0;
};

// What the kernels count in 32 bits, and what memory is counted by.
void check_sizes(const CtcPadded& b, const Totals& t) {
  const int32_t frames = t.capacity.frames;
  if (frames > most_sequence_frames) {
    fail_input("input length ", frames, ", expected at most ", most_sequence_frames);
  }
  if (t.capacity.rows > std::numeric_limits<int32_t>::max()) {
    fail_input(frames, " frames of ", b.sequences, " sequences are more than 2^31 rows");
  }
  if (t.longest_labels > ctc_most_labels) {
    fail_input("label length ", t.longest_labels, ", expected at most ", ctc_most_labels);
  }
  if (t.labels > std::numeric_limits<int32_t>::max()) fail_input(t.labels, " labels in a batch");
  if (static_cast<double>(t.capacity.rows) * b.classes > most_elements) {
    fail_input(t.capacity.rows, " rows of ", b.classes, " classes are more than 2^50 logits");
  }
  const double states = 2.0 * t.longest_labels + 1;
  if ((frames + 1.0) * b.sequences * states > most_elements) {
    fail_input(frames, " frames of ", b.sequences, " sequences with ", t.longest_labels,
               " labels are more than 2^50 states");
  }
}

Totals totals_of(const CtcPadded& b) {
  if (b.classes <= 0) fail_input("alphabet size ", b.classes, ", expected at least 1");
  if (b.classes > ctc_most_classes) {
    fail_input("alphabet size ", b.classes, ", expected at most ", ctc_most_classes);
  }
  if (b.sequences <= 0) fail_input("minibatch of ", b.sequences, ", expected at least 1");
  Totals t;
  t.capacity.sequences = b.sequences;
  for (int32_t n = 0; n < b.sequences; ++n) {
    if (b.input_lengths[n] < 0) fail_input("input length ", n, " is ", b.input_lengths[n]);
    if (b.label_lengths[n] < 0) fail_input("label length ", n, " is ", b.label_lengths[n]);
    t.capacity.frames = std::max(t.capacity.frames, b.input_lengths[n]);
    t.longest_labels = std::max(t.longest_labels, b.label_lengths[n]);
    t.labels += b.label_lengths[n];
  }
  t.capacity.rows = int64_t{t.capacity.frames} * b.sequences;
  check_sizes(b, t);
  return t;
}

void check_labels(const CtcPadded& b) {
  if (b.blank < 0 || b.blank >= b.classes) {
    fail_input("blank label ", b.blank, ", expected 0 to ", b.classes - 1);
  }
  const int32_t* labels = b.flat_labels;
  for (int32_t n = 0; n < b.sequences; ++n) {
    const auto count = static_cast<size_t>(b.label_lengths[n]);
    validate_ctc_labels({labels, count}, b.classes, b.blank, str("sequence ", n));
    labels += count;
  }
}

// What the kernels read beside the activations, in one piece that is copied at once.
struct Tables {
  PackedExtent* extent = nullptr;
  int32_t *lengths = nullptr, *row_offsets = nullptr, *row_frame = nullptr;
  int32_t *labels = nullptr, *label_offsets = nullptr;
  void* loss = nullptr;
  size_t bytes = 0;

  Tables(const CtcPadded& b, const Totals& t, std::byte* memory) {
    const auto part = [&]<class T>(T*& pointer, int64_t count) {
      pointer = memory ? reinterpret_cast<T*>(memory + bytes) : nullptr;
      const size_t size = static_cast<size_t>(count) * sizeof(T);
      bytes += (size + alignment - 1) / alignment * alignment;
    };
    part(extent, 1);
    part(lengths, b.sequences);
    part(row_offsets, int64_t{t.capacity.frames} + 1);
    part(row_frame, t.capacity.rows);
    part(labels, t.labels);
    part(label_offsets, int64_t{b.sequences} + 1);
    double* loss_memory = nullptr;
    part(loss_memory, b.sequences);
    loss = loss_memory;
  }

  void fill(const CtcPadded& b, const Totals& t) const {
    *extent = {static_cast<int32_t>(t.capacity.rows), t.capacity.frames, b.sequences};
    std::copy_n(b.input_lengths, b.sequences, lengths);
    for (int32_t i = 0; i <= t.capacity.frames; ++i) row_offsets[i] = i * b.sequences;
    for (int32_t i = 0; i < t.capacity.frames; ++i) {
      std::fill_n(row_frame + int64_t{i} * b.sequences, b.sequences, i);
    }
    if (t.labels > 0) std::copy_n(b.flat_labels, t.labels, labels);
    label_offsets[0] = 0;
    for (int32_t n = 0; n < b.sequences; ++n) {
      label_offsets[n + 1] = label_offsets[n] + b.label_lengths[n];
    }
  }
};

// Waits for a stream before what it still uses goes away.
class StreamGuard {
 public:
  explicit StreamGuard(Stream* stream) : stream_(stream) {}
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard() {
    if (!stream_) return;
    try {
      stream_->synchronize();
    } catch (const Error&) {  // whatever ended the call early has been thrown already
    }
  }
  void finish() {
    if (stream_) stream_->synchronize();
    stream_ = nullptr;
  }

 private:
  Stream* stream_;
};

// Sequences whose labels do not fit into their frames cost 0. Of the others, a cost above `most`
// per frame means that each alignment meets a class whose softmax is 0 in this type: infinity.
template <class T>
void adjust_costs(const CtcPadded& b) {
  // -log of half the smallest number there is.
  constexpr double most = sizeof(T) == sizeof(float) ? 103.98 : 745.14;
  auto* costs = static_cast<T*>(b.costs);
  const int32_t* labels = b.flat_labels;
  for (int32_t n = 0; n < b.sequences; ++n) {
    const auto count = static_cast<size_t>(b.label_lengths[n]);
    const int32_t frames = b.input_lengths[n];
    if (ctc_min_frames({labels, count}) > frames) {
      costs[n] = 0;
    } else if (static_cast<double>(costs[n]) > most * frames) {
      costs[n] = std::numeric_limits<T>::infinity();
    }
    labels += count;
  }
}

void clear_padding(const CtcPadded& b, const Totals& t) {
  const size_t row_bytes = static_cast<size_t>(b.classes) * size_of(b.dtype);
  auto* grad = static_cast<std::byte*>(b.gradients);
  for (int32_t n = 0; n < b.sequences; ++n) {
    for (int32_t i = b.input_lengths[n]; i < t.capacity.frames; ++i) {
      std::memset(grad + (static_cast<size_t>(i) * static_cast<size_t>(b.sequences) +
                          static_cast<size_t>(n)) *
                             row_bytes,
                  0, row_bytes);
    }
  }
}

}  // namespace

size_t ctc_padded_workspace_bytes(const Context& context, const CtcPadded& b) {
  const Totals t = totals_of(b);
  return alignment + Tables(b, t, nullptr).bytes +
         ctc_workspace_bytes(context, t.capacity, b.dtype, b.classes, t.longest_labels, true);
}

void ctc_padded(const Context& context, void (*run)(const Context&, const CtcArgs&),
                const CtcPadded& b, void* workspace) {
  const Totals t = totals_of(b);
  check_labels(b);
  auto address = reinterpret_cast<uintptr_t>(workspace);
  auto* memory = reinterpret_cast<std::byte*>((address + alignment - 1) / alignment * alignment);
  const Tables tables(b, t, memory);
  const bool on_host = context.backend == Backend::ref || context.backend == Backend::cpu;
  std::vector<std::byte> staging(on_host ? 0 : tables.bytes + alignment);
  const Tables host(b, t, on_host ? memory : staging.data());
  host.fill(b, t);
  StreamGuard guard(on_host ? nullptr : context.stream);
  if (!on_host) context.device->copy(*context.stream, memory, staging.data(), tables.bytes);

  CtcArgs args;
  args.layout.capacity = t.capacity;
  args.layout.extent = tables.extent;
  args.layout.lengths = tables.lengths;
  args.layout.row_offsets = tables.row_offsets;
  args.layout.row_frame = tables.row_frame;
  args.labels = tables.labels;
  args.label_offsets = tables.label_offsets;
  args.max_label_length = t.longest_labels;
  args.blank = b.blank;
  const int64_t rows = t.capacity.rows, classes = b.classes;
  args.logits = TensorView(const_cast<void*>(b.activations), b.dtype, {rows, classes});
  if (b.gradients) args.grad = TensorView(b.gradients, b.dtype, {rows, classes});
  args.loss = TensorView(tables.loss, b.dtype, {b.sequences});
  const size_t scratch = ctc_workspace_bytes(context, t.capacity, b.dtype, classes,
                                             t.longest_labels, static_cast<bool>(args.grad));
  args.workspace = TensorView(memory + tables.bytes, DType::u8, {static_cast<int64_t>(scratch)});
  run(context, args);
  const size_t loss_bytes = static_cast<size_t>(b.sequences) * size_of(b.dtype);
  if (on_host) {
    copy_bytes(b.costs, tables.loss, loss_bytes);
    if (b.gradients) clear_padding(b, t);
  } else {
    context.device->copy(*context.stream, b.costs, tables.loss, loss_bytes);
    guard.finish();
  }
  b.dtype == DType::f64 ? adjust_costs<double>(b) : adjust_costs<float>(b);
}

}  // namespace rondo
