#include "tools/corpus/fitted_settings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr double frames_per_second = 100;

// CTC leaves the phase in which it writes nothing after some hundred updates, and is done after a
// few thousand; an epoch of a small set has to have many of them, in small batches.
struct Course {
  int64_t batch_frames = 0, epochs = 0, warmup = 0;
};

struct CourseBounds {
  int64_t updates, updates_of_an_epoch, least_batch, most_batch, least_epochs, most_epochs;
};

Course course_for(double frames, const CourseBounds& b) {
  Course c;
  // Rounded to two digits, so that the file is easy to read.
  const double wanted = frames / static_cast<double>(b.updates_of_an_epoch);
  const double digit = std::pow(10, std::floor(std::log10(std::max(wanted, 10.0))) - 1);
  c.batch_frames = std::clamp(static_cast<int64_t>(std::round(wanted / digit) * digit),
                              b.least_batch, b.most_batch);
  const double of_an_epoch = std::max(1.0, frames / static_cast<double>(c.batch_frames));
  c.epochs =
      std::clamp(static_cast<int64_t>(std::ceil(static_cast<double>(b.updates) / of_an_epoch)),
                 b.least_epochs, b.most_epochs);
  c.warmup = std::clamp(static_cast<int64_t>(of_an_epoch * static_cast<double>(c.epochs) / 20),
                        int64_t{10}, int64_t{100});
  return c;
}

// How many utterances have too few frames for their texts when `subsample` frames become one.
int64_t count_unfit(const TrainingFacts& f, int subsample) {
  int64_t unfit = 0;
  for (size_t i = 0; i < f.lengths.size(); ++i) {
    const double frames = f.lengths[i] * frames_per_second - 2;
    unfit += std::floor(frames / subsample) < f.needed_frames[i];
  }
  return unfit;
}

// The most that leaves the texts their frames. What does not fit even by itself is no reason.
int subsample_for(const TrainingFacts& f) {
  const int64_t spare = static_cast<int64_t>(f.lengths.size()) / 200;
  for (int subsample = 3; subsample > 1; --subsample) {
    if (count_unfit(f, subsample) - count_unfit(f, 1) <= spare) return subsample;
  }
  return 1;
}

// A frame for each label, and a blank between equal ones.
template <class Label>
size_t frames_needed(const std::vector<Label>& labels) {
  size_t needed = labels.size();
  for (size_t i = 1; i < labels.size(); ++i) needed += labels[i] == labels[i - 1];
  return needed;
}

int hidden_for(double hours) {
  return hours < 0.3 ? 96 : hours < 1 ? 128 : hours < 4 ? 160 : hours < 15 ? 256 : 384;
}

std::string amount(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds >= 5400 ? "%.1f hours" : "%.1f minutes",
                seconds / (seconds >= 5400 ? 3600 : 60));
  return text;
}

std::string course_text(const Course& c, const char* rate, const std::string& data,
                        const char* training) {
  return str("\n[data]\nbatch_frames = ", c.batch_frames, "\n", data,
             "\n[optimizer]\ntype = \"adamw\"\nlr = ", rate,
             "\nweight_decay = 0.01\n\n[lr]\ntype "
             "= \"cosine\"\nwarmup_steps = ",
             c.warmup, "\n\n[training]\nepochs = ", c.epochs, "\nclip = 5\n", training);
}

std::string for_sound(const TrainingFacts& f) {
  const double seconds = std::accumulate(f.lengths.begin(), f.lengths.end(), 0.0);
  const double usual = seconds / static_cast<double>(f.lengths.size());
  const bool much = seconds >= 3600;
  const int subsample = subsample_for(f);
  const int64_t unfit = count_unfit(f, subsample);
  const Course course = course_for(seconds * frames_per_second, {2400, 90, 800, 8000, 12, 60});
  std::string text = "\n[features]\n";
  if (f.kind == InputKind::features) {
    text += "type = \"ready\"\n";
  } else {
    const bool low = f.rate > 0 && f.rate < 16000;
    text += str("type = \"log_mel\"\nrate = ", low ? f.rate : 16000,
                low ? "  # as most recordings have it" : "", "\nbins = 40\n");
  }
  text +=
      str("cmvn = \"utterance\"\n\n[model]\nhidden = ", hidden_for(seconds / 3600), "  # for ",
          amount(seconds), "\nlayers = 2\nbidirectional = true\ndropout = ", much ? "0.2" : "0.15",
          "\nsubsample = ", subsample, "  # so many frames of 10 ms become one",
          subsample < 3 ? "; more would be too few for these texts" : "", "\n");
  std::string skip;
  if (unfit > 0)
    skip = str("text_too_long = \"skip\"  # ", unfit, unfit == 1 ? " is" : " are",
               " spoken too fast for ", unfit == 1 ? "its text" : "their texts", "\n");
  const int mask = usual < 1 ? 4 : 12;
  text += str(
      "\n[augment]\nspec_augment = true\nfrequency_masks = 2\nfrequency_width = 6\ntime_masks = ",
      usual < 4 && !much ? 1 : 2, "\ntime_width = ", mask, "\n",
      f.kind == InputKind::features ? "" : "speed = [0.9, 1.0, 1.1]\n");
  return text + course_text(course, much ? "3e-3" : "4e-3", skip, "");
}

std::string for_lines(const TrainingFacts& f) {
  // The network below reads lines of 40 pixels, `lengths` are of the usual height.
  const double columns =
      std::accumulate(f.lengths.begin(), f.lengths.end(), 0.0) * 40 / LineConfig().height;
  const Course course = course_for(columns, {3300, 110, 1600, 8000, 8, 60});
  const bool leftwards = f.direction == LineDirection::leftwards;
  const bool downwards = f.direction == LineDirection::downwards;
  return str("\n[features]\ntype = \"image\"\nheight = 40\n",
             leftwards   ? "direction = \"rtl\"\n"
             : downwards ? "direction = \"ttb\"\n"
                         : "",
             f.ink == Ink::light       ? "ink = \"light\"\n"
             : f.ink == Ink::automatic ? "ink = \"auto\"\n"
                                       : "",
             "\n[model]\nvgsl = \"[1,40,0,1 Cr3,3,16 Mp2,2 Cr3,3,48 Mp2,2 S1(1x0)1,3 Lbx200 Do0.3 "
             "Lbx200 Do0.3]\"\n"
             "\n[distort]\nprobability = 0.4\nstretch = 0.1\nslant = 6\nrotation = 0.5\nsize = "
             "0.1\noffset = 2\n"
             "elastic = 2\nthickness = 0.5\nblur = 0.8\nfade = 0.3\nnoise = 0.1\ncutouts = "
             "3\ncutout_size = 10\n") +
         course_text(course, "4e-3", "", "dtype = \"bf16\"\n");
}

// What is done to texts is kept with the model, and done to all that it is compared with. Only what
// changes nothing the second time: the texts of the manifests have been through it.
std::string for_texts(const TrainingFacts& f) {
  std::string text;
  if (f.text.marks == Marks::token) text += "marks = \"token\"\n";
  if (f.text.drop_invisible) text += "drop_invisible = true\n";
  if (f.text.strip_punctuation) text += "strip_punctuation = true\n";
  if (f.text.lowercase) text += "lowercase = true\n";
  if (!f.text.locale.tag.empty()) text += str("locale = \"", f.text.locale.tag, "\"\n");
  if (f.phones) text += "unit = \"word\"  # the texts look like phones: each is a label\n";
  return text.empty() ? "" : "\n[text]\n" + text;
}

}  // namespace

void TrainingFacts::add(double length, std::string_view transcript) {
  lengths.push_back(static_cast<float>(length));
  needed_frames.push_back(static_cast<float>(phones ? frames_needed(split_words(transcript))
                                                    : frames_needed(code_points(transcript))));
}

std::string fitted_settings(const TrainingFacts& facts) {
  const bool image = facts.kind == InputKind::image;
  const std::string text = (facts.classes ? "\ntask = \"classify\"\n" : "") + for_texts(facts);
  return str("# Written by rondo prepare for ", facts.lengths.size(),
             image ? " lines" : " utterances",
             "; change what you like.\n#   rondo train DIR/train.toml data=DIR\n", text,
             image ? for_lines(facts) : for_sound(facts));
}

}  // namespace rondo
