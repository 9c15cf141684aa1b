#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "engine/c/handles.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/dtype.h"
#include "kernels/base/packed_host.h"
#include "kernels/ctc/ctc.h"

namespace rondo::c {
namespace {

// A caller's array [frames, sequences, classes].
struct Strided {
  std::byte* data = nullptr;
  int64_t frame = 0, sequence = 0, column = 0;  // bytes

  Strided(const void* given, const int64_t* strides, const rondo_ctc& b, size_t element)
      : data(static_cast<std::byte*>(const_cast<void*>(given))) {
    const auto bytes = static_cast<int64_t>(element);
    const bool dense = strides[0] == 0 && strides[1] == 0 && strides[2] == 0;
    column = bytes * (dense ? 1 : strides[2]);
    sequence = bytes * (dense ? b.classes : strides[1]);
    frame = bytes * (dense ? b.classes * b.sequences : strides[0]);
  }
  std::byte* row(int64_t t, int64_t n) const { return data + t * frame + n * sequence; }
};

// Between a caller's row and one without gaps.
template <class T>
void copy_row(std::byte* to, int64_t to_step, const std::byte* from, int64_t from_step,
              int64_t count) {
  constexpr auto one = static_cast<int64_t>(sizeof(T));
  if (to_step == one && from_step == one) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * to_step, from + i * from_step, sizeof(T));
}

DType dtype_of(rondo_dtype given) {
  switch (given) {
    case RONDO_F32:
      return DType::f32;
    case RONDO_BF16:
      return DType::bf16;
    case RONDO_F64:
      return DType::f64;
  }
  fail_input("rondo_ctc: dtype ", static_cast<int>(given), ", expected RONDO_F32, _BF16 or _F64");
}

void check_sizes(const rondo_ctc& b) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const auto between = [](const char* name, int64_t value, int64_t least, int64_t largest) {
    if (value < least || value > largest)
      fail_input("rondo_ctc: ", name, " ", value, ", expected ", least, " to ", largest);
  };
  between("frames", b.frames, 0, most_sequence_frames);
  between("sequences", b.sequences, 1, most);
  between("classes", b.classes, 1, ctc_most_classes);
  between("blank", b.blank, 0, b.classes - 1);
  between("threads", b.threads, 0, most);
  between("reduction", b.reduction, RONDO_NONE, RONDO_MEAN);
  if (b.frames > 0 && b.sequences > most / b.frames)
    fail_input("rondo_ctc: ", b.frames, " frames of ", b.sequences,
               " sequences are more than 2^31 rows");
  if (b.frames > 0) require_given(b.logits, "rondo_ctc.logits");
  require_given(b.label_lengths, "rondo_ctc.label_lengths");
}

// A batch as the kernels take it: longest sequence first, and no padding.
class CtcBatch {
 public:
  explicit CtcBatch(const rondo_ctc& b)
      : b_(b),
        dtype_(dtype_of(b.dtype)),
        logits_(b.logits, b.strides, b, size_of(dtype_)),
        gradient_(b.gradient, b.gradient_strides, b, size_of(dtype_)) {
    read_lengths();
    read_labels();
    const int32_t cpus = usable_cpus();
    pool_ = std::make_unique<ThreadPool>(b.threads == 0 ? cpus : std::min(b.threads, cpus));
  }

  void compute(double* loss) {
    const bool with_grad = b_.gradient != nullptr;
    const size_t row_bytes = static_cast<size_t>(b_.classes) * size_of(dtype_);
    const Buffer rows(cpu_device(), static_cast<size_t>(layout_.extent.rows) * row_bytes, "logits");
    packed_ = static_cast<std::byte*>(rows.data());
    gather();
    const Context context{Backend::cpu, &cpu_device(), nullptr, pool_.get()};
    CtcArgs a;
    a.layout = layout_.view();
    a.logits = {packed_, dtype_, {layout_.extent.rows, b_.classes}};
    a.labels = labels_.data();
    a.label_offsets = label_offsets_.data();
    a.max_label_length = longest_labels_;
    a.blank = b_.blank;
    a.input = b_.log_softmax != 0 ? CtcInput::log_softmax : CtcInput::logits;
    a.zero_infinity = b_.zero_infinity != 0;
    const DType loss_dtype = dtype_ == DType::f64 ? DType::f64 : DType::f32;
    const size_t loss_bytes = static_cast<size_t>(b_.sequences) * size_of(loss_dtype);
    const Buffer losses(cpu_device(), loss_bytes, "losses");
    const Buffer scales(cpu_device(), loss_bytes, "scales of gradients");
    a.loss = {losses.data(), loss_dtype, {b_.sequences}};
    set_scales(scales.data(), loss_dtype);
    if (with_grad) {
      a.grad = a.logits;
      a.grad_scale = {scales.data(), loss_dtype, {b_.sequences}};
    }
    const Buffer workspace(cpu_device(),
                           ctc_workspace_bytes(context, a.layout.capacity, dtype_, b_.classes,
                                               longest_labels_, with_grad),
                           "CTC's lattice");
    a.workspace = {workspace.data(), DType::u8, {static_cast<int64_t>(workspace.bytes())}};
    run(context, a);
    if (with_grad) scatter();
    tell(losses.data(), loss_dtype, loss);
  }

 private:
  void read_lengths() {
    std::vector<int32_t> given(static_cast<size_t>(b_.sequences), static_cast<int32_t>(b_.frames));
    for (int64_t n = 0; b_.lengths && n < b_.sequences; ++n) {
      const int32_t length = b_.lengths[n];
      if (length < 0 || length > b_.frames)
        fail_input("rondo_ctc: lengths[", n, "] is ", length, ", expected 0 to ", b_.frames);
      given[static_cast<size_t>(n)] = length;
    }
    order_ = longest_first(given);
    std::vector<int32_t> sorted;
    for (const int32_t n : order_) sorted.push_back(given[static_cast<size_t>(n)]);
    layout_ = build_packed(sorted);
    lengths_ = std::move(given);
  }

  void read_labels() {
    std::vector<int64_t> begins = {0};
    for (int64_t n = 0; n < b_.sequences; ++n) {
      const int32_t count = b_.label_lengths[n];
      if (count < 0 || count > ctc_most_labels)
        fail_input("rondo_ctc: label_lengths[", n, "] is ", count, ", expected 0 to ",
                   ctc_most_labels);
      begins.push_back(begins.back() + count);
    }
    if (begins.back() > std::numeric_limits<int32_t>::max())
      fail_input("rondo_ctc: ", begins.back(), " labels in a batch, expected fewer than 2^31");
    if (begins.back() > 0) require_given(b_.labels, "rondo_ctc.labels");
    label_offsets_.push_back(0);
    for (const int32_t n : order_) {
      const auto count = static_cast<size_t>(b_.label_lengths[n]);
      const std::span of(b_.labels + begins[static_cast<size_t>(n)], count);
      validate_ctc_labels(of, b_.classes, b_.blank, str("sequence ", n));
      labels_.insert(labels_.end(), of.begin(), of.end());
      label_offsets_.push_back(static_cast<int32_t>(labels_.size()));
      longest_labels_ = std::max(longest_labels_, static_cast<int32_t>(count));
    }
  }

  // work(a caller's row of `which`, the packed row) for every frame there is.
  template <class Work>
  void each_row(const Strided& which, const Work& work) {
    const auto row_bytes = b_.classes * static_cast<int64_t>(size_of(dtype_));
    pool_->for_range(layout_.extent.frames, 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t first = layout_.row_offsets[static_cast<size_t>(t)];
        const int64_t active = layout_.batch_sizes[static_cast<size_t>(t)];
        for (int64_t n = 0; n < active; ++n)
          work(which.row(t, order_[static_cast<size_t>(n)]), packed_ + (first + n) * row_bytes);
      }
    });
  }

  void copy(std::byte* to, int64_t to_step, const std::byte* from, int64_t from_step) const {
    if (dtype_ == DType::f64) return copy_row<double>(to, to_step, from, from_step, b_.classes);
    if (dtype_ == DType::f32) return copy_row<float>(to, to_step, from, from_step, b_.classes);
    copy_row<uint16_t>(to, to_step, from, from_step, b_.classes);
  }

  void gather() {
    const auto one = static_cast<int64_t>(size_of(dtype_));
    each_row(logits_, [&](const std::byte* theirs, std::byte* ours) {
      copy(ours, one, theirs, logits_.column);
    });
  }

  void scatter() {
    const auto one = static_cast<int64_t>(size_of(dtype_));
    each_row(gradient_, [&](std::byte* theirs, const std::byte* ours) {
      copy(theirs, gradient_.column, ours, one);
    });
    const std::vector<std::byte> zeros(static_cast<size_t>(b_.classes * one));
    for (int64_t n = 0; n < b_.sequences; ++n) {
      for (int64_t t = lengths_[static_cast<size_t>(n)]; t < b_.frames; ++t)
        copy(gradient_.row(t, n), gradient_.column, zeros.data(), one);
    }
  }

  // Of the loss of sequence n in the number that is asked for.
  double weight(int64_t n) const {
    if (b_.reduction != RONDO_MEAN) return 1;
    return 1.0 / (static_cast<double>(b_.sequences) * std::max(b_.label_lengths[n], 1));
  }

  void set_scales(void* scales, DType dtype) const {
    for (size_t i = 0; i < order_.size(); ++i) {
      const double w = weight(order_[i]);
      if (dtype == DType::f64) {
        static_cast<double*>(scales)[i] = w;
      } else {
        static_cast<float*>(scales)[i] = static_cast<float>(w);
      }
    }
  }

  void tell(const void* losses, DType dtype, double* loss) const {
    if (b_.reduction != RONDO_NONE) *loss = 0;
    std::vector<double> by_sequence(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      by_sequence[static_cast<size_t>(order_[i])] =
          dtype == DType::f64 ? static_cast<const double*>(losses)[i]
                              : static_cast<double>(static_cast<const float*>(losses)[i]);
    }
    for (int64_t n = 0; n < b_.sequences; ++n) {
      const double value = by_sequence[static_cast<size_t>(n)];
      if (b_.reduction == RONDO_NONE) {
        loss[n] = value;
      } else {
        *loss += weight(n) * value;
      }
    }
  }

  const rondo_ctc& b_;
  const DType dtype_;
  const Strided logits_, gradient_;
  std::unique_ptr<ThreadPool> pool_;
  PackedHost layout_;
  std::vector<int32_t> order_, lengths_;  // of the caller's sequences, longest first; and theirs
  std::vector<int32_t> labels_, label_offsets_;
  int32_t longest_labels_ = 0;
  std::byte* packed_ = nullptr;
};

rondo_ctc usual_ctc() {
  rondo_ctc b{};
  b.size = sizeof b;
  return b;
}

}  // namespace
}  // namespace rondo::c

using namespace rondo;
using namespace rondo::c;

void rondo_ctc_init(rondo_ctc* batch, size_t size) { write_options(batch, size, usual_ctc()); }

rondo_status rondo_ctc_loss(const rondo_ctc* batch, double* loss) {
  return guarded([&] {
    require_given(batch, "batch");
    require_given(loss, "loss");
    const rondo_ctc b = read_options(batch, usual_ctc(), "rondo_ctc");
    check_sizes(b);
    CtcBatch(b).compute(loss);
  });
}
