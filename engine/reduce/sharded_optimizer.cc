#include "engine/reduce/sharded_optimizer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

ShardedOptimizer::ShardedOptimizer(const OptimizerOptions& options, Parameters& parameters,
                                   const Context& context, ProcessGroup& group,
                                   DeviceGroup* devices)
    : whole_(parameters),
      context_(context),
      group_(group),
      devices_(devices),
      layout_(parameters.flat_size(), group.size()),
      part_(layout_.graph(), parameters.device()),
      optimizer_(options, part_, layout_.first_of(group.rank(), parameters.frozen_size())),
      parts_(parameters.device(), part_bytes() * static_cast<size_t>(group.size()),
             "weights of all ranks") {
  if (!devices && !parameters.device().host_memory()) {
    fail_input("parallel.shard_optimizer in pipelines on GPUs needs NCCL, which was not found");
  }
  RONDO_CHECK(parameters.dtype() == DType::f32, "weights must be f32");
  // What no block fills is never read as a weight, but it is updated like one.
  Device& device = *context_.device;
  for (const TensorView& array : {part_.weights(), part_.gradients()}) {
    device.fill_bytes(*context_.stream, array.data, 0, array.bytes());
  }
  context_.stream->synchronize();
}

Optimizer::Result ShardedOptimizer::apply(double count) {
  RONDO_CHECK(!averaged_, "an update of averaged weights");
  copy_own(whole_.gradients(), part_.gradients());
  const Optimizer::Result result = optimizer_.apply(context_, count);
  gather_weights(part_.weights());
  return result;
}

void ShardedOptimizer::take_weights() {
  averaged_ = false;
  copy_own(whole_.weights(), part_.weights());
  context_.stream->synchronize();
}

void ShardedOptimizer::swap_average() {
  if (!optimizer_.averages()) return;
  averaged_ = !averaged_;
  gather_weights(averaged_ ? slot("average") : part_.weights());
}

std::vector<float> ShardedOptimizer::gather(const std::string& name) {
  gather_parts(slot(name));
  std::vector<float> parts(parts_.bytes() / sizeof(float));
  context_.device->copy(*context_.stream, parts.data(), parts_.data(), parts_.bytes());
  context_.stream->synchronize();
  std::vector<float> flat(static_cast<size_t>(whole_.flat_size()));
  for (int rank = 0; rank < group_.size(); ++rank) {
    layout_.unpack(rank, parts.data() + rank * layout_.part(), flat.data());
  }
  return flat;
}

void ShardedOptimizer::set(const std::string& name, std::span<const float> flat) {
  RONDO_CHECK(flat.size() == static_cast<size_t>(whole_.flat_size()), flat.size(), " values for ",
              whole_.flat_size());
  std::vector<float> part(static_cast<size_t>(layout_.part()));
  layout_.pack(group_.rank(), flat.data(), part.data());
  context_.device->copy(*context_.stream, slot(name).data, part.data(), part_bytes());
  context_.stream->synchronize();
}

TensorView ShardedOptimizer::slot(const std::string& name) const {
  for (const auto& s : optimizer_.state()) {
    if (s.name == name) return s.view;
  }
  RONDO_CHECK(false, "the optimiser has no state '", name, "'");
}

void ShardedOptimizer::gather_parts(const TensorView& part) {
  context_.device->copy(*context_.stream, place_of(group_.rank()), part.data, part_bytes());
  context_.stream->synchronize();
  ProcessGroup& group = devices_ ? *devices_ : group_;
  group.all_gather(TensorView(parts_.data(), DType::f32, {layout_.part() * group_.size()})).wait();
}

void ShardedOptimizer::gather_weights(const TensorView& part) {
  gather_parts(part);
  for (int rank = 0; rank < group_.size(); ++rank) {
    copy_blocks(layout_, context_, rank, whole_.weights().data, place_of(rank), BlockCopy::unpack);
  }
  context_.stream->synchronize();  // others read them on other streams
}

void ShardedOptimizer::copy_own(const TensorView& flat, const TensorView& part) const {
  copy_blocks(layout_, context_, group_.rank(), flat.data, part.data, BlockCopy::pack);
}

}  // namespace rondo
