#include "engine/train/pipeline_training.h"

namespace rondo {

bool wants_pipeline(const Config& config) {
  return config.parallel.pipeline > 1 || config.parallel.data > 0 || config.parallel.chunks > 1;
}

PipelineSettings pipeline_settings(const Config& config) {
  const ParallelConfig& p = config.parallel;
  PipelineSettings s;
  s.schedule = p.schedule;
  s.micro_batches = p.micro_batches > 0 ? p.micro_batches : 2 * p.pipeline;
  s.chunks = p.chunks;
  s.placement = p.placement;
  s.stage_memory = static_cast<size_t>(p.stage_memory_mb) * 1024 * 1024;
  s.bucket_bytes = p.bucket_kb * 1024;
  s.options.wire = p.wire == DType::bf16 ? Wire::bf16 : Wire::exact;
  s.options.timeout = std::chrono::duration_cast<CommClock::duration>(
      std::chrono::duration<double>(p.timeout_seconds));
  return s;
}

}  // namespace rondo
