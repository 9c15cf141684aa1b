#include "engine/train/training_report.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <filesystem>

#include "engine/data/audio/bandwidth.h"
#include "engine/io/file.h"
#include "engine/report/charts.h"
#include "engine/train/model/open_data.h"
#include "engine/train/run_files.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/cpu/resident_memory.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

// All rates of an evaluation: "WER 3.21%  CER 1.20%", "error 3.21%"; of a task without any the
// loss.
std::string rates_text(Task task, const Evaluation& e) {
  switch (task) {
    case Task::ctc:
      return metric_text(Metric::wer, e.value(Metric::wer)) + "  " +
             metric_text(Metric::cer, e.value(Metric::cer));
    case Task::classify:
      return metric_text(Metric::error, e.value(Metric::error));
    case Task::regress:
      break;
  }
  return metric_text(Metric::loss, e.value(Metric::loss));
}

// What the learning curve is called: the last part of the checkpoint directory's path.
fs::path directory_of(const Config& config) {
  return fs::absolute(config.training.checkpoint_dir).lexically_normal();
}
std::string run_name(const Config& config) {
  const fs::path directory = directory_of(config);
  return (directory.has_filename() ? directory : directory.parent_path()).filename().string();
}

}  // namespace

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TrainingReport::TrainingReport(const Config& config, const TrainerOptions& options,
                               const Ranks& ranks)
    : config_(config),
      rank_(ranks.rank()),
      ranks_(ranks.size()),
      observer_(options.observer),
      log_path_(log_path(config, rank_)),
      log_(std::make_unique<JsonlWriter>(log_path_)),
      rank_seconds_(static_cast<size_t>(ranks_)),
      slow_(ranks_) {
  if (fs::is_regular_file(log_path_)) logged_before_ = fs::file_size(log_path_);
  if (rank_ != 0) return;
  if (options.out != nullptr) {
    bar_ = std::make_unique<ProgressBar>(options.out, ProgressStyle::detect(options.out));
  }
  if (!config.training.tensorboard.empty()) {
    tensorboard_ = std::make_unique<TensorBoardWriter>(config.training.tensorboard);
  }
}

void TrainingReport::log(std::span<const LogField> fields) {
  log_->write(fields);
  if (logged_) logged_->add(fields);
}

void TrainingReport::cut_back(const LogCut& cut) {
  // TensorBoard takes steps from there on out by itself.
  if (tensorboard_ && (tensorboard_->continues() || cut.step > 0)) {
    tensorboard_->session_start(cut.step + 1);
  }
  if (logged_before_ > 0 && cut_log(log_path_, logged_before_, cut)) {
    log_ = std::make_unique<JsonlWriter>(log_path_);
  }
}

// The log is read once: that of a long run has hundreds of megabytes.
void TrainingReport::draw_curve() {
  if (!logged_) logged_ = read_training_log(log_path_);
  const fs::path picture = fs::path(config_.training.checkpoint_dir) / "learning_curve.svg";
  replace_text_file(picture, learning_curve_svg(learning_curve_of(*logged_, run_name(config_))));
}

void TrainingReport::message(const std::string& text) {
  if (observer_ != nullptr) observer_->message(text);
  if (bar_) {
    bar_->message(printable(text, LineBreaks::kept));
    return;
  }
  const LogField fields[] = {{"event", std::string("message")}, {"text", text}};
  log(fields);
}

void TrainingReport::warnings(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) message("warning: " + text);
}

void TrainingReport::begin(int64_t weights, const std::string& model, const ManifestDataset& train,
                           const ManifestDataset* dev, const TrainingState& state, bool resumed) {
  message(format("model: %" PRId64 " weights, %s, ", weights, name_of(config_.training.dtype)) +
          model);
  std::string data = "data: " + counted(train.size(), noun_of(input_kind(config_.features.type)));
  if (train.total_seconds() > 0) data += " (" + format_duration(train.total_seconds()) + ")";
  data += " to train on, ";
  data += dev ? format("%" PRId64 " to validate", dev->size()) : "none to validate (no data.dev)";
  if (config_.data.test.empty()) data += ", none to test with (no data.test)";
  message(data);
  if (resumed) {
    message(
        format("continuing after step %" PRId64 ", epoch %" PRIu64, state.step, state.epoch + 1));
  }
  started_ = logged_at_ = now_seconds();
  cut_back({.step = state.step,
            .validation_again = state.validation_pending,
            .checkpoint_dir = config_.training.log.empty() ? "" : directory_of(config_).string()});
  const LogField fields[] = {{"event", std::string(resumed ? "resume" : "start")},
                             {"step", state.step},
                             {"checkpoint_dir", directory_of(config_).string()},
                             {"weights", weights},
                             {"utterances", train.size()},
                             {"chosen_by", std::string(name_of(state.chosen_by))},
                             {"seed", static_cast<int64_t>(config_.training.seed)},
                             {"rank", static_cast<int64_t>(rank_)},
                             {"ranks", static_cast<int64_t>(ranks_)}};
  log(fields);
}

void TrainingReport::regrouped(const TrainingState& state, const KeptRun& kept,
                               bool validation_again) {
  cut_back({.step = state.step,
            .from_memory = true,
            .validation_again = validation_again,
            .checkpoint_dir = config_.training.log.empty() ? "" : directory_of(config_).string()});
  std::string text =
      "going on after step " + std::to_string(state.step) + " with " + counted(ranks_, "rank");
  if (kept.ranks > 0 && kept.ranks != ranks_) text += format(" instead of %d", kept.ranks);
  message(text);
  started_ = logged_at_ = now_seconds();
  std::vector<LogField> fields = {{"event", std::string("regroup")},
                                  {"step", state.step},
                                  {"rank", static_cast<int64_t>(rank_)},
                                  {"ranks", static_cast<int64_t>(ranks_)}};
  if (kept.ranks > 0) {  // those that have just come have not stood still
    const std::chrono::duration<double> pause = std::chrono::steady_clock::now() - kept.since;
    fields.push_back({"pause_seconds", pause.count()});
  }
  log(fields);
}

void TrainingReport::memory(const TrainingState& state, size_t activations) {
  const LogField fields[] = {{"event", std::string("memory")},
                             {"step", state.step},
                             {"activations", static_cast<int64_t>(activations)},
                             {"resident", static_cast<int64_t>(resident_memory().bytes)}};
  log(fields);
}

void TrainingReport::problems(const ManifestDataset& data, const std::string& manifest) {
  if (data.problems().empty()) return;
  message("warning: left out: " +
          summarize(data.problems(), data.size() + static_cast<int64_t>(data.problems().size()),
                    noun_of(input_kind(config_.features.type)), manifest));
  for (const DatasetProblem& p : data.problems()) {
    const LogField fields[] = {
        {"event", std::string("left_out")}, {"where", p.where}, {"what", p.what}};
    log(fields);
  }
}

void TrainingReport::rates(const ManifestDataset& data, const std::string& manifest,
                           const AudioReader* audio) {
  const int32_t rate = config_.features.rate;
  if (rank_ != 0 || input_kind(config_.features.type) != InputKind::recording) return;
  int64_t below = 0;
  int32_t lowest = rate;
  for (const auto& [own, count] : data.rates()) {
    if (own < rate) below += count;
    lowest = std::min(lowest, own);
  }
  if (below > 0) {
    message(str("warning: ", manifest, ": ", below, " of ", data.size(),
                " recordings have less than ", rate,
                " Hz, the model's features.rate: nothing is in the upper part of what it ",
                "hears; features.rate=", lowest, " fits all"));
    return;
  }
  // A few from all over the data tell whether they were made from a lower rate.
  constexpr int64_t looked_at = 16;
  int64_t narrow = 0, heard = 0;
  int32_t made_from = rate;
  for (int64_t n = 0; audio && n < std::min(looked_at, data.size()); ++n) {
    const ManifestEntry& e = data.entry(n * data.size() / std::min(looked_at, data.size()));
    double hertz = 0;
    try {
      hertz = bandwidth_of(audio->read(e.file(), rate, e.segment()).samples, rate);
    } catch (const InputError&) {
      continue;  // it is said in its turn
    }
    if (hertz == 0) continue;
    ++heard;
    narrow += true_rate(rate, hertz) < rate;
    made_from = std::min(made_from, true_rate(rate, hertz));
  }
  if (2 * narrow <= heard) return;
  message(str("warning: ", manifest, ": ", narrow, " of ", heard,
              " recordings that were looked at have nothing in the upper part of what the model ",
              "hears, as if made from ", made_from, " Hz; features.rate=", made_from,
              " fits them"));
}

void TrainingReport::unwritable(const Unwritable& text, const std::string& manifest) {
  if (!text.any()) return;
  message("warning: " + manifest + ": " +
          text.sentence(noun_of(input_kind(config_.features.type))));
  const LogField fields[] = {{"event", std::string("unwritable")},
                             {"where", manifest},
                             {"utterances", text.utterances()},
                             {"characters", text.characters()},
                             {"words", text.words()}};
  log(fields);
}

void TrainingReport::step(const TrainingState& state, const StepResult& r, double rate,
                          double epoch, int64_t expected_steps, const StepTimes& times) {
  const double now = now_seconds();
  if (observer_ != nullptr) {
    const int64_t counted = r.sequences - r.infeasible - r.nonfinite;
    const double loss = counted > 0 ? r.mean_loss() : std::nan("");
    observer_->stepped({state.step, epoch, loss, rate, r.gradient_norm, r.skipped});
  }
  if (first_step_ < 0) first_step_ = state.step - 1;
  loss_sum_ += r.loss;
  sequences_ += r.sequences - r.infeasible - r.nonfinite;
  frames_ += r.frames;
  for (size_t i = 0; i < times.rank_seconds.size(); ++i) rank_seconds_[i] += times.rank_seconds[i];
  if (bar_) show_progress(state, epoch, expected_steps, now);
  if (!times.rank_seconds.empty()) {
    const std::string slow = slow_.add(times.rank_seconds, times.rank_waits, now);
    if (!slow.empty()) {
      const LogField fields[] = {
          {"event", std::string("slow_rank")}, {"step", state.step}, {"text", slow}};
      log(fields);
      if (rank_ == 0) message("warning: " + slow);
    }
  }
  if (state.step % config_.training.log_every_steps != 0 && !r.skipped) return;
  log_step(state, r, rate, epoch, times, std::max(now - logged_at_, 1e-9));
  loss_sum_ = 0;
  sequences_ = frames_ = 0;
  logged_at_ = now;
  waited_before_ = times.waited_for_input;
  communicated_before_ = times.communication;
  std::fill(rank_seconds_.begin(), rank_seconds_.end(), 0.0);
}

void TrainingReport::show_progress(const TrainingState& state, double epoch, int64_t expected_steps,
                                   double now) {
  progress_.epochs = config_.training.epochs;
  progress_.epoch = std::min<int64_t>(static_cast<int64_t>(std::ceil(epoch)), progress_.epochs);
  progress_.done = epoch - std::floor(epoch) == 0 ? 1 : epoch - std::floor(epoch);
  progress_.loss = sequences_ > 0 ? loss_sum_ / static_cast<double>(sequences_) : std::nan("");
  progress_.frames_per_second = static_cast<double>(frames_) / std::max(now - logged_at_, 1e-9);
  const double per_step = (now - started_) / static_cast<double>(state.step - first_step_);
  double remaining = per_step * static_cast<double>(expected_steps - state.step);
  if (config_.training.max_seconds > 0) {
    remaining = std::min(remaining, config_.training.max_seconds - state.seconds);
  }
  progress_.eta_seconds = std::max(remaining, 0.0);
  bar_->update(progress_, now);
}

void TrainingReport::log_step(const TrainingState& state, const StepResult& r, double rate,
                              double epoch, const StepTimes& times, double seconds) {
  const double loss = sequences_ > 0 ? loss_sum_ / static_cast<double>(sequences_) : std::nan("");
  const double frames_per_second = static_cast<double>(frames_) / seconds;
  std::vector<LogField> fields = {
      {"event", std::string("step")},
      {"step", state.step},
      {"epoch", epoch},
      {"loss", loss},
      {"lr", rate},
      {"gradient_norm", r.gradient_norm},
      {"frames_per_second", frames_per_second},
      {"input_wait_share", (times.waited_for_input - waited_before_) / seconds},
      {"skipped", state.skipped},
      {"seconds", state.seconds}};
  if (ranks_ > 1) {
    const Sums::Times between{
        times.communication.communication - communicated_before_.communication,
        times.communication.exposed - communicated_before_.exposed};
    const auto slowest = std::max_element(rank_seconds_.begin(), rank_seconds_.end());
    fields.push_back({"communication_seconds", between.communication});
    fields.push_back({"hidden_communication", between.hidden_share()});
    if (*slowest > 0) {
      fields.push_back({"compute_seconds", rank_seconds_[static_cast<size_t>(rank_)]});
      fields.push_back({"slowest_rank", static_cast<int64_t>(slowest - rank_seconds_.begin())});
      fields.push_back({"slowest_compute_seconds", *slowest});
    }
  }
  for (const auto& [name, value] : times.more) fields.push_back({name, value});
  log(fields);
  if (!tensorboard_) return;
  tensorboard_->scalar("loss/train", state.step, static_cast<float>(loss));
  tensorboard_->scalar("learning_rate", state.step, static_cast<float>(rate));
  tensorboard_->scalar("gradient_norm", state.step, static_cast<float>(r.gradient_norm));
  tensorboard_->scalar("frames_per_second", state.step, static_cast<float>(frames_per_second));
}

void TrainingReport::validation(const TrainingState& state, const Evaluation& e, Task task,
                                bool best, std::vector<SampleHypothesis> samples) {
  const double metric = e.value(state.chosen_by);
  const std::string chosen_by = name_of(state.chosen_by);
  if (observer_ != nullptr) {
    observer_->validated({state.step, e.loss, metric, state.chosen_by, best});
  }
  progress_.metric =
      (state.chosen_by == Metric::loss ? "dev " : "") + metric_text(state.chosen_by, metric);
  std::string line =
      format("step %-6" PRId64 " dev loss %s", state.step, loss_text(e.loss).c_str());
  if (task != Task::regress) line += "  " + rates_text(task, e);
  if (best) line += "  (best so far, by " + title_of(state.chosen_by) + ")";
  message(line);
  std::sort(samples.begin(), samples.end(),
            [](const auto& a, const auto& b) { return a.utterance < b.utterance; });
  std::string markdown;
  for (const SampleHypothesis& s : samples) {
    if (task != Task::ctc) break;
    message("    reference  " + s.reference);
    message("    hypothesis " + s.hypothesis);
    markdown += "* " + s.reference + "\n* **" + s.hypothesis + "**\n\n";
  }
  std::vector<LogField> fields = {{"event", std::string("validation")},
                                  {"step", state.step},
                                  {"loss", e.loss},
                                  {"best", best},
                                  {"chosen_by", chosen_by},
                                  {"seconds", state.seconds}};
  if (task == Task::ctc) {
    fields.push_back({"wer", e.errors.wer()});
    fields.push_back({"cer", e.errors.cer()});
  } else if (task == Task::classify) {
    fields.push_back({"error", e.value(Metric::error)});
  }
  log(fields);
  if (tensorboard_) {
    if (!std::isnan(e.loss)) {
      tensorboard_->scalar("loss/dev", state.step, static_cast<float>(e.loss));
    }
    if (task == Task::ctc) {
      tensorboard_->scalar("wer/dev", state.step, static_cast<float>(e.errors.wer()));
      tensorboard_->scalar("cer/dev", state.step, static_cast<float>(e.errors.cer()));
      if (!markdown.empty()) tensorboard_->text("samples", state.step, markdown);
    } else if (task == Task::classify) {
      tensorboard_->scalar("error/dev", state.step, static_cast<float>(e.value(Metric::error)));
    }
    if (std::isfinite(state.best_metric)) {
      tensorboard_->scalar("best/" + chosen_by, state.step, static_cast<float>(state.best_metric));
    }
  }
  // Validation is not training speed.
  logged_at_ = now_seconds();
  if (rank_ != 0) return;
  draw_curve();
}

void TrainingReport::test(const TrainingState& state, const Evaluation& e, Task task) {
  message("best model on the test data: " + rates_text(task, e) + " on " +
          counted(e.utterances, noun_of(input_kind(config_.features.type))));
  std::vector<LogField> fields = {{"event", std::string("test")},
                                  {"step", state.step},
                                  {"loss", e.loss},
                                  {"metric", e.value(state.chosen_by)},
                                  {"chosen_by", std::string(name_of(state.chosen_by))}};
  if (task == Task::ctc) {
    fields.push_back({"wer", e.errors.wer()});
    fields.push_back({"cer", e.errors.cer()});
  } else if (task == Task::classify) {
    fields.push_back({"error", e.value(Metric::error)});
  }
  log(fields);
}

void TrainingReport::end(const TrainingState& state) {
  const LogField fields[] = {{"event", std::string("end")},
                             {"step", state.step},
                             {"peak_resident", static_cast<int64_t>(resident_memory().peak)}};
  log(fields);
  if (bar_) bar_->finish();
}

}  // namespace rondo
