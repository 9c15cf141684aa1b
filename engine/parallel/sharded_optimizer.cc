#include "engine/parallel/sharded_optimizer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {
ShardedOptimizer::ShardedOptimizer(const OptimizerOptions& options, Parameters& parameters,
                                   ProcessGroup& group)
    : whole_(parameters),
      group_(group),
      layout_(parameters.flat_size(), group.size()),
      part_(layout_.graph(), parameters.device()),
      optimizer_(options, part_),
      parts_(static_cast<size_t>(layout_.part() * group.size())) {
  RONDO_CHECK(parameters.device().host_memory(), "weights must be in host memory");
  RONDO_CHECK(parameters.dtype() == DType::f32, "weights must be f32");
}

Optimizer::Result ShardedOptimizer::apply(const Context& context, double count) {
  RONDO_CHECK(!averaged_, "an update of averaged weights");
  copy_own(whole_.gradients().as<float>(), part_.gradients().as<float>());
  const Optimizer::Result result = optimizer_.apply(context, count);
  gather_into(part_.weights().as<float>(), whole_.weights().as<float>());
  return result;
}

void ShardedOptimizer::take_weights() {
  averaged_ = false;
  copy_own(whole_.weights().as<float>(), part_.weights().as<float>());
}

void ShardedOptimizer::swap_average() {
  if (!optimizer_.averages()) return;
  averaged_ = !averaged_;
  const TensorView from = averaged_ ? slot("average") : part_.weights();
  gather_into(from.as<float>(), whole_.weights().as<float>());
}

std::vector<float> ShardedOptimizer::gather(const std::string& name) {
  std::vector<float> flat(static_cast<size_t>(whole_.flat_size()));
  gather_into(slot(name).as<float>(), flat.data());
  return flat;
}

void ShardedOptimizer::set(const std::string& name, std::span<const float> flat) {
  RONDO_CHECK(flat.size() == static_cast<size_t>(whole_.flat_size()), flat.size(), " values for ",
              whole_.flat_size());
  copy_own(flat.data(), slot(name).as<float>());
}

TensorView ShardedOptimizer::slot(const std::string& name) const {
  for (const auto& s : optimizer_.state()) {
    if (s.name == name) return s.view;
  }
  RONDO_CHECK(false, "the optimiser has no state '", name, "'");
}

void ShardedOptimizer::gather_into(const float* part, float* flat) {
  const int64_t size = layout_.part();
  std::copy_n(part, size, own_place());
  group_.all_gather(TensorView(parts_.data(), DType::f32, {size * group_.size()})).wait();
  for (int rank = 0; rank < group_.size(); ++rank) {
    layout_.unpack(rank, parts_.data() + rank * size, flat);
  }
}

void ShardedOptimizer::copy_own(const float* flat, float* part) const {
  layout_.pack(group_.rank(), flat, part);
}

}  // namespace rondo
