// A model and devices whose predictions can be worked out by hand.
#pragma once

#include "engine/plan/split.h"

namespace rondo::test {

// Only arithmetic costs, 1 ns an operation; links are as given.
inline plan::Cluster simple_cluster(int devices, plan::LinkModel link = {"link", false, 0, 1e30}) {
  plan::Cluster c;
  c.device.name = "simple";
  c.device.memory_bytes = 1e12;
  for (const char* op : {"lstm", "lstm_backward", "lstm_weight_grad"}) {
    c.device.rates[str(op, "/f32")] = {.operation = 1e-9};
  }
  c.device.rates["other/f32"] = {};
  c.link = c.node_link = link;
  c.devices = devices;
  return c;
}

// LSTM layers of 64 cells, a linear layer and CTC; 64 sequences of 100 frames in a batch.
inline plan::Job lstm_job(int layers, bool bidirectional = false) {
  plan::Job job;
  job.model = [=](Graph& g) {
    ValueId x = layers::input_frames(g, "features", 64);
    layers::LstmOptions o;
    o.hidden = 64;
    o.layers = layers;
    o.bidirectional = bidirectional;
    x = layers::lstm(g, x, "encoder", o);
    const ValueId logits = layers::linear(g, x, "output", 16);
    return Outputs{layers::ctc_loss(g, logits), logits};
  };
  job.batches = {{{64, 100, 20}, 1}};
  return job;
}

// Flops of one layer of lstm_job per phase: W and R, both 256 x 64.
constexpr double layer_flops = 2.0 * 64 * 100 * (256 * 64 + 256 * 64);

}  // namespace rondo::test
