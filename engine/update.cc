#include "engine/update.h"

#include <chrono>

#include "comm/group/device_group.h"
#include "engine/graph/trace.h"
#include "engine/part_layout.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/reduce/reduce.h"

namespace rondo {
namespace {

struct SlotSpec {
  const char* name;
  bool wanted;
};

std::vector<SlotSpec> slots_of(const OptimizerOptions& o) {
  const bool adam = o.kind != OptimizerOptions::sgd;
  return {{"momentum", !adam && o.momentum != 0},
          {"first_moment", adam},
          {"second_moment", adam},
          {"average", o.ema_decay > 0}};
}

// The scalars' memory: the kernels' block, the sum of squares, the reduction's scratch, and the
// sums of squares that a sum of several ranks is made of.
constexpr size_t block_bytes = (sizeof(OptimizerBlock) + 63) / 64 * 64;
constexpr size_t scalar_bytes = block_bytes + 64 + reduce_workspace_bytes;

}  // namespace

size_t Update::state_bytes(const OptimizerOptions& options, int64_t flat_size) {
  size_t n = 0;
  for (const SlotSpec& s : slots_of(options)) n += s.wanted ? 1 : 0;
  return n * static_cast<size_t>(flat_size) * sizeof(float) + scalar_bytes;
}

Update::Update(const OptimizerOptions& options, Parameters& parameters, const Context& context,
               const UpdateRanks& ranks)
    : options_(options),
      whole_(parameters),
      context_(context),
      ranks_(ranks),
      updated_(&parameters),
      frozen_(parameters.frozen_size()) {
  if (parameters.dtype() != DType::f32) return;  // f64 graphs check gradients; they do not train
  Device& device = parameters.device();
  Stream stream = device.make_stream();
  const auto clear = [&](void* data, size_t bytes) { device.fill_bytes(stream, data, 0, bytes); };
  if (ranks.owners) {
    if (!ranks.devices && !device.host_memory()) {
      fail_input("parallel.divide_optimizer on GPUs needs NCCL, which was not found");
    }
    layout_ = std::make_unique<PartLayout>(parameters.flat_size(), ranks.owners->size());
    part_ = std::make_unique<Parameters>(layout_->graph(), device);
    updated_ = part_.get();
    frozen_ = layout_->first_of(ranks.owners->rank(), frozen_);
    parts_ = Buffer(device, part_->weights().bytes() * static_cast<size_t>(ranks.owners->size()),
                    "weights of all ranks");
    // What no block fills is never read as a weight, but it is updated and squared like one.
    for (const TensorView& v : {part_->weights(), part_->gradients()}) clear(v.data, v.bytes());
  }
  list_ranges();
  const int64_t n = updated_->flat_size();
  memory_ = Buffer(device, state_bytes(options, n) - scalar_bytes, "optimizer state");
  scalars_ = Buffer(device, scalar_bytes + places_ * sizeof(double), "optimizer state");
  clear(memory_.data(), memory_.bytes());
  clear(scalars_.data(), scalars_.bytes());
  stream.synchronize();
  auto* at = memory_.as<float>();
  for (const SlotSpec& s : slots_of(options)) {
    if (!s.wanted) continue;
    slots_.push_back({s.name, TensorView(at, DType::f32, {n})});
    at += n;
  }
  write_block();
  take_weights();
}

Update::~Update() = default;

void Update::list_ranges() {
  if (!ranks_.stages) {
    const TensorView all = whole_.gradients();
    const int64_t frozen = whole_.frozen_size();
    const TensorView summed(all.as<float>() + frozen, DType::f32, {all.numel() - frozen});
    ranges_.push_back({0, ranks_.own_sums ? part_->gradients() : summed});
    return;
  }
  places_ = ranks_.entries.size();
  for (size_t i = 0; i < places_; ++i) {
    if (!whole_.has(ranks_.entries[i].name)) continue;
    const TensorView g = whole_.gradient(ranks_.entries[i].name);
    ranges_.push_back({i, TensorView(g.data, g.dtype, {g.numel()})});
  }
}

OptimizerBlock* Update::block() const {
  RONDO_CHECK(scalars_.data() != nullptr, "an f64 session cannot train");
  return reinterpret_cast<OptimizerBlock*>(scalars_.as<uint8_t>());
}

double* Update::squares() const {
  return reinterpret_cast<double*>(scalars_.as<uint8_t>() + block_bytes);
}

double* Update::inverse_count() const {
  return scalars_.data() ? &block()->inverse_count : nullptr;
}

// What the kernels find there before the first step, or after the host has changed it.
void Update::write_block() {
  OptimizerBlock host;
  host.learning_rate = options_.learning_rate;
  host.max_norm = options_.clip_norm;
  host.ema_decay = options_.ema_decay;
  host.steps = static_cast<double>(steps_);
  Device& device = whole_.device();
  Stream stream = device.make_stream();
  device.copy(stream, block(), &host, sizeof host);
  stream.synchronize();
}

void Update::set_steps(int64_t steps) {
  steps_ = steps;
  if (scalars_.data()) write_block();
}

TensorView Update::trained(const TensorView& flat) const {
  if (!flat) return {};
  return {flat.as<float>() + frozen_, DType::f32, {flat.numel() - frozen_}};
}

TensorView Update::slot(const std::string& name) const {
  for (const Slot& s : slots_) {
    if (s.name == name) return s.view;
  }
  return {};
}

Update::Result Update::apply(double count) {
  RONDO_CHECK(count > 0, "gradients of ", count, " sequences");
  Staging staging;
  send(staging, count);
  update();
  fetch(staging);
  spread();
  context_.stream->synchronize();
  return finish(staging);
}

void Update::send(Staging& staging, double count) {
  RONDO_CHECK(!averaged_, "an update of averaged weights");
  gathered_.clear();
  Device& device = *context_.device;
  OptimizerBlock* on_device = block();
  staging.in.learning_rate = options_.learning_rate;
  device.copy(*context_.stream, &on_device->learning_rate, &staging.in.learning_rate,
              sizeof(double));
  if (count > 0) {
    staging.in.inverse_count = 1 / count;
    device.copy(*context_.stream, &on_device->inverse_count, &staging.in.inverse_count,
                sizeof(double));
  }
  if (part_) pack(whole_.gradients(), part_->gradients());
  if (!norm_ranks()) return;
  staging.squares = sum_over_ranks();
  device.copy(*context_.stream, squares(), &staging.squares, sizeof(double));
}

void Update::square(const TensorView& gradients, double* out) {
  SumSquaresArgs a;
  a.x = gradients;
  a.out = TensorView(out, DType::f64, {1});
  a.workspace = TensorView(scalars_.as<uint8_t>() + block_bytes + 64, DType::u8,
                           {static_cast<int64_t>(reduce_workspace_bytes)});
  run(context_, a);
}

// Of one rank's number and zeros in each place, or of each rank's in the same place.
double Update::sum_over_ranks() {
  auto* const on_device = reinterpret_cast<double*>(scalars_.as<uint8_t>() + scalar_bytes);
  for (const Range& r : ranges_) square(r.gradients, on_device + r.place);
  std::vector<double> sums(places_);
  context_.device->copy(*context_.stream, sums.data(), on_device, places_ * sizeof(double));
  context_.stream->synchronize();
  const TensorView view(sums.data(), DType::f64, {static_cast<int64_t>(places_)});
  norm_ranks()->all_reduce(view, Reduction::sum).wait();
  double total = 0;
  for (double s : sums) total += s;
  return total;
}

void Update::update() {
  const Span span(context_, "update weights");
  const OptimizerOptions& o = options_;
  const bool adam = o.kind != OptimizerOptions::sgd;
  if (!norm_ranks()) square(ranges_.front().gradients, squares());
  run(context_, OptimizerPrepareArgs{block(), squares(), adam ? o.beta1 : 0, adam ? o.beta2 : 0});
  if (adam) {
    AdamArgs a;
    a.block = block();
    a.weights = trained(updated_->weights());
    a.gradients = trained(updated_->gradients());
    a.moment1 = trained(slot("first_moment"));
    a.moment2 = trained(slot("second_moment"));
    a.beta1 = o.beta1;
    a.beta2 = o.beta2;
    a.epsilon = o.epsilon;
    a.weight_decay = o.weight_decay;
    a.decoupled = o.kind == OptimizerOptions::adamw;
    run(context_, a);
  } else {
    SgdArgs a;
    a.block = block();
    a.weights = trained(updated_->weights());
    a.gradients = trained(updated_->gradients());
    a.momentum_buffer = trained(slot("momentum"));
    a.momentum = o.momentum;
    a.nesterov = o.nesterov;
    a.weight_decay = o.weight_decay;
    run(context_, a);
  }
  if (averages()) {
    run(context_, EmaArgs{block(), trained(updated_->weights()), trained(slot("average"))});
  }
}

void Update::fetch(Staging& staging) {
  context_.device->copy(*context_.stream, &staging.out, block(), sizeof(OptimizerBlock));
}

void Update::spread() {
  if (!part_) return;
  const auto begin = std::chrono::steady_clock::now();
  gather_weights(part_->weights());
  spreading_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Update::Result Update::finish(const Staging& staging) {
  steps_ = static_cast<int64_t>(staging.out.steps);
  return {staging.out.grad_norm, staging.out.skip != 0};
}

void Update::take_weights() {
  averaged_ = false;
  if (part_) pack(whole_.weights(), part_->weights());
  if (const TensorView average = slot("average")) {
    context_.device->copy(*context_.stream, average.data, updated_->weights().data,
                          average.bytes());
  }
  context_.stream->synchronize();
}

void Update::swap_average() {
  const TensorView average = slot("average"), weights = updated_->weights();
  if (!average) return;
  if (part_) {
    averaged_ = !averaged_;
    return gather_weights(averaged_ ? average : weights);
  }
  Device& device = whole_.device();
  Buffer temporary(device, average.bytes(), "exchange of averaged weights");
  Stream stream = device.make_stream();
  device.copy(stream, temporary.data(), average.data, average.bytes());
  device.copy(stream, average.data, weights.data, average.bytes());
  device.copy(stream, weights.data, temporary.data(), average.bytes());
  stream.synchronize();
}

std::vector<Update::Slot> Update::gather(bool here) {
  if (!part_) return here ? slots_ : std::vector<Slot>();
  gathered_.clear();
  std::vector<Slot> whole;
  for (const Slot& s : slots_) {
    std::vector<float>& flat = gathered_.emplace_back(gather(s.name, here));
    if (!here) continue;
    whole.push_back({s.name, TensorView(flat.data(), DType::f32, {whole_.flat_size()})});
  }
  return whole;
}

std::vector<float> Update::gather(const std::string& name, bool here) {
  const TensorView own = slot(name);
  RONDO_CHECK(own, "the optimiser has no state '", name, "'");
  if (part_) gather_parts(own);
  if (!here) return {};
  std::vector<float> flat(static_cast<size_t>(whole_.flat_size()));
  std::vector<float> parts(part_ ? parts_.bytes() / sizeof(float) : 0);
  context_.device->copy(*context_.stream, part_ ? parts.data() : flat.data(),
                        part_ ? parts_.data() : own.data, part_ ? parts_.bytes() : own.bytes());
  context_.stream->synchronize();
  for (int rank = 0; part_ && rank < layout_->ranks(); ++rank) {
    layout_->unpack(rank, parts.data() + rank * layout_->part(), flat.data());
  }
  return flat;
}

void Update::set(const std::string& name, std::span<const float> flat) {
  RONDO_CHECK(flat.size() == static_cast<size_t>(whole_.flat_size()), flat.size(), " values for ",
              whole_.flat_size());
  const TensorView own = slot(name);
  RONDO_CHECK(own, "the optimiser has no state '", name, "'");
  std::vector<float> part(part_ ? static_cast<size_t>(layout_->part()) : 0);
  if (part_) layout_->pack(ranks_.owners->rank(), flat.data(), part.data());
  context_.device->copy(*context_.stream, own.data, part_ ? part.data() : flat.data(), own.bytes());
  context_.stream->synchronize();
}

void Update::gather_parts(const TensorView& own) {
  auto* const place =
      parts_.as<std::byte>() + own.bytes() * static_cast<size_t>(ranks_.owners->rank());
  context_.device->copy(*context_.stream, place, own.data, own.bytes());
  context_.stream->synchronize();
  ProcessGroup& group = ranks_.devices ? *ranks_.devices : *ranks_.owners;
  group.all_gather(TensorView(parts_.data(), DType::f32, {layout_->part() * group.size()})).wait();
}

void Update::gather_weights(const TensorView& own) {
  gather_parts(own);
  for (int rank = 0; rank < layout_->ranks(); ++rank) {
    copy_blocks(*layout_, context_, rank, whole_.weights().data,
                parts_.as<std::byte>() + own.bytes() * static_cast<size_t>(rank),
                BlockCopy::unpack);
  }
  context_.stream->synchronize();  // others read them on other streams
}

void Update::pack(const TensorView& flat, const TensorView& part) const {
  copy_blocks(*layout_, context_, ranks_.owners->rank(), flat.data, part.data, BlockCopy::pack);
}

}  // namespace rondo
