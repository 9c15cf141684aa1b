// The one table of graph ops. Each line is a rule defined in its own file of this folder.
#include "engine/graph/rules.h"

#include "engine/ops/rules_list.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

const std::vector<const OpRule*>& table() {
  static const std::vector<const OpRule*> rules = {
      &accumulate_rule(),
      &cast_rule(),
      &columns_rule(),
      &conv_rule(),
      &conv_grad_input_rule(),
      &conv_grad_weight_rule(),
      &cross_entropy_rule(),
      &ctc_rule(),
      &ctc_chunk_alpha_rule(),
      &ctc_chunk_grad_rule(),
      &dropout_rule(),
      &edge_frames_rule(),
      &edge_frames_grad_rule(),
      &fill_rule(),
      &group_norm_rule(),
      &group_norm_grad_rule(),
      &images_rule(),
      &layer_norm_rule(),
      &layer_norm_grad_rule(),
      &linear_rule(),
      &linear_ctc_rule(),
      &linear_ctc_grad_rule(),
      &linear_grad_input_rule(),
      &linear_grad_weight_rule(),
      &log_softmax_rule(),
      &log_softmax_grad_rule(),
      &lstm_rule(),
      &lstm_backward_rule(),
      &lstm_stack_rule(),
      &lstm_stack_backward_rule(),
      &lstm_weight_grad_rule(),
      &mse_rule(),
      &pointwise_rule(),
      &pointwise_grad_rule(),
      &pool_rule(),
      &pool_grad_rule(),
      &pool2d_rule(),
      &pool2d_grad_rule(),
      &reverse_frames_rule(),
      &stack_frames_rule(),
      &stack_frames_grad_rule(),
  };
  return rules;
}

// Those of tests.
std::vector<const OpRule*>& extra_rules() {
  static std::vector<const OpRule*> rules;
  return rules;
}

}  // namespace

ExtraRule::ExtraRule(const OpRule& rule) { extra_rules().push_back(&rule); }
ExtraRule::~ExtraRule() { extra_rules().pop_back(); }

const OpRule& rule_of(std::string_view op) {
  for (const OpRule* rule : table()) {
    if (op == rule->op) return *rule;
  }
  for (const OpRule* rule : extra_rules()) {
    if (op == rule->op) return *rule;
  }
  RONDO_CHECK(false, "no rule for op '", op, "'");
}

std::vector<std::string_view> rule_names() {
  std::vector<std::string_view> names;
  for (const OpRule* rule : table()) names.emplace_back(rule->op);
  return names;
}

}  // namespace rondo
