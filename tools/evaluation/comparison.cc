#include "tools/evaluation/comparison.h"

#include <cstdio>

#include "engine/config/config.h"
#include "kernels/base/error.h"
#include "tools/evaluation/media.h"

namespace rondo {
namespace {

double rate_of(const report::Counts& c) {
  return c.reference > 0 ? static_cast<double>(c.errors()) / static_cast<double>(c.reference) : 0;
}

double difference_of(const report::Comparison::Rate& r) {
  return rate_of(r.second) - rate_of(r.first);
}

std::vector<report::Comparison::Change> changes_of(const std::vector<RunComparison::Change>& all,
                                                   const ManifestDataset& data,
                                                   const MediaReaders& readers, int32_t rate) {
  std::vector<int64_t> indices;
  for (const RunComparison::Change& c : all) indices.push_back(c.index);
  const std::vector<WorstMedia> media = media_of(indices, data, readers, rate);
  std::vector<report::Comparison::Change> changes;
  for (size_t i = 0; i < all.size(); ++i) {
    changes.push_back(all[i].texts);
    add_media(media[i], changes.back().first);
  }
  return changes;
}

}  // namespace

void print_comparison(const EvalResults& first, const EvalResults& second,
                      const RunComparison& comparison) {
  for (const EvalResults* r : {&first, &second}) {
    std::printf("%s: WER %s CER %s\n", r->model.c_str(),
                percent_text(r->evaluation.errors.wer()).c_str(),
                percent_text(r->evaluation.errors.cer()).c_str());
  }
  std::printf("%lld %ss of both, the second less the first:\n",
              static_cast<long long>(comparison.utterances()), noun_of(first.kind));
  for (const report::Comparison::Rate& r : comparison.rates()) {
    std::printf("  %s %+.2f points", r.name.c_str(), 100 * difference_of(r));
    if (r.difference)
      std::printf(", 95%% interval %+.2f to %+.2f", 100 * r.difference->low,
                  100 * r.difference->high);
    std::printf("\n");
  }
}

Json comparison_json(const EvalResults& first, const EvalResults& second,
                     const RunComparison& comparison) {
  Json difference = Json::object({{"utterances", comparison.utterances()}});
  for (const report::Comparison::Rate& r : comparison.rates()) {
    const std::string key = r.name == "WER"   ? "wer"
                            : r.name == "CER" ? "cer"
                                              : "wer_without_punctuation";
    difference[key] = difference_of(r);
    difference[key + "_interval"] =
        r.difference ? Json::array({r.difference->low, r.difference->high}) : Json();
  }
  return Json::object({{"first", results_json(first)},
                       {"second", results_json(second)},
                       {"difference", difference}});
}

report::EvaluationPage comparison_page(const EvalResults& first, const EvalResults& second,
                                       const RunComparison& comparison, const ManifestDataset& data,
                                       const MediaReaders& readers) {
  report::EvaluationPage page;
  page.title = str(first.model, " and ", second.model);
  page.noun = noun_of(first.kind);
  page.facts = {{"first", first.model_file},
                {"second", second.model_file},
                {"manifest", first.manifest},
                {str(page.noun, "s"), std::to_string(comparison.utterances())}};
  if (!first.search.empty()) page.facts.push_back({"search", first.search});
  report::Comparison c;
  c.first = first.model;
  c.second = second.model;
  c.characters_first = first.kind == InputKind::image;
  c.rates = comparison.rates();
  c.utterances = comparison.utterances();
  c.wrong_first = comparison.wrong_first();
  c.wrong_second = comparison.wrong_second();
  c.interval_method = str(
      "Points: percentage points of the second less the first. Their interval is a percentile "
      "bootstrap: ",
      bootstrap_samples, " draws of the same ", page.noun,
      "s for both, from a fixed seed. One that holds 0 says that the difference may be chance.");
  c.settings = config_differences(first.config, second.config);
  c.first_curve = first.curve;
  c.second_curve = second.curve;
  c.worse = changes_of(comparison.worse(), data, readers, first.config.features.rate);
  c.better = changes_of(comparison.better(), data, readers, first.config.features.rate);
  page.comparison = std::move(c);
  return page;
}

}  // namespace rondo
