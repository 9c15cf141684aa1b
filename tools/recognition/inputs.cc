#include "tools/recognition/inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <span>

#include "engine/data/audio/audio.h"
#include "engine/data/audio/bandwidth.h"
#include "engine/data/audio/sound_format.h"
#include "engine/data/features/endings.h"
#include "engine/data/features/feature_file.h"
#include "engine/data/features/npy.h"
#include "engine/data/image/image.h"
#include "engine/data/manifest.h"
#include "engine/io/safetensors.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/error.h"
#include "tools/command_line/command_line.h"
#include "tools/corpus/lists/list_files.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

bool is_feature_file(const std::string& path) {
  return has_ending(path, ".npy") || has_ending(path, ".safetensors");
}

ModelInput from_manifest(const ManifestEntry& e) {
  ModelInput input;
  input.name = e.name();
  input.file = e.file();
  input.key = e.features_key;
  input.kind = e.kind;
  input.region = e.region;
  input.segment = e.segment();
  input.known = Json::parse(to_json_line(e));
  return input;
}

void add_file(const std::string& path, InputKind wanted, std::vector<ModelInput>& inputs) {
  ModelInput input;
  input.name = input.file.path = path;
  // A name that says nothing is of what the model reads; its reader says if it is not.
  input.kind = is_feature_file(path)                                    ? InputKind::features
               : is_image_name(path) || has_ending(path, ".xml")        ? InputKind::image
               : wanted == InputKind::image && !is_recording_name(path) ? InputKind::image
                                                                        : InputKind::recording;
  if (!has_ending(path, ".safetensors") || !fs::is_regular_file(path)) {
    inputs.push_back(std::move(input));
    return;
  }
  const SafetensorsFile file(path);
  for (const StoredTensor& tensor : file.tensors()) {
    inputs.push_back(input);
    inputs.back().key = tensor.name;
    if (file.tensors().size() > 1) inputs.back().name += ":" + tensor.name;
  }
}

// Its lines, as a manifest would have them.
void add_page(const std::string& path, std::vector<ModelInput>& inputs) {
  std::shared_ptr<const PageFile> page;
  try {
    page = std::make_shared<const PageFile>(open_page(path, ImageFileReader()));
    if (page->lines.empty()) fail_input(path, ": has no lines (TextLine)");
    if (!page->encoding_problem.empty()) throw InputError(page->encoding_problem);
  } catch (const InputError& e) {
    // Other pages may be fine.
    inputs.emplace_back();
    inputs.back().name = inputs.back().file.path = path;
    inputs.back().kind = InputKind::image;
    inputs.back().problem = e.what();
    return;
  }
  for (const PageLine& line : page->lines) {
    ManifestEntry entry;
    entry.kind = InputKind::image;
    entry.path = entry.path_as_written = page->image;
    entry.region = line.region;
    if (line.has_text) entry.text = line.text;
    entry.extra = Json::object({{"id", name_of(*page, line)}}).dump();
    inputs.push_back(from_manifest(entry));
    inputs.back().page = page;
    if (!line.problem.empty())
      inputs.back().problem = str(name_of(*page, line), ": ", line.problem);
  }
}

bool is_wanted(const std::string& path, InputKind wanted) {
  switch (wanted) {
    case InputKind::recording:
      return is_recording_file(path);
    case InputKind::features:
      return has_ending(path, ".npy");
    case InputKind::image:
      return is_image_name(path);
  }
  return false;
}

const char* plural_of(InputKind kind) {
  constexpr std::array names = {"recordings", "feature files", "images or pages"};
  return names.at(static_cast<size_t>(kind));
}

// Texts and the like that belong to an input of the same name: a.txt, a.gt.txt, a.TextGrid.
bool is_beside(const fs::path& file, const std::set<fs::path>& stems) {
  for (fs::path stem = file; stem.has_extension();) {
    stem.replace_extension();
    if (stems.contains(stem)) return true;
  }
  return false;
}

// What is in a folder and not read.
void tell_others(const std::string& folder, InputKind wanted, const std::vector<fs::path>& others,
                 const std::vector<corpus::NotWalked>& not_walked) {
  constexpr size_t shown = 5;
  if (!others.empty()) {
    std::string names;
    for (size_t i = 0; i < std::min(shown, others.size()); ++i)
      names += str(i ? ", '" : "'", others[i].lexically_relative(folder).string(), "'");
    warn(str(folder, ": leaves out what are no ", plural_of(wanted), ", ", others.size(),
             others.size() == 1 ? " file: " : " files: ", names,
             others.size() > shown ? ", ..." : ""));
  }
  for (const corpus::NotWalked& other : not_walked) warn(other.what);
}

void add_folder(const std::string& folder, InputKind wanted, std::vector<ModelInput>& inputs) {
  std::vector<std::string> files, pages;
  std::vector<fs::path> others;
  std::vector<corpus::NotWalked> not_walked;
  const auto any = [](const fs::path&) { return true; };
  for (const fs::path& file : corpus::files_below(folder, any, &not_walked)) {
    const std::string path = file.string();
    if (is_wanted(path, wanted)) {
      files.push_back(path);
    } else if (wanted == InputKind::image && is_page_file(path)) {
      pages.push_back(path);
    } else if (!file.filename().string().starts_with('.')) {
      others.push_back(file);
    }
  }
  if (files.empty() && pages.empty()) {
    fail_input(folder, ": holds no ",
               wanted == InputKind::features ? "feature files (.npy)"
               : wanted == InputKind::image
                   ? "images (.png, .jpg, .tif, .pgm, ...) and no pages (.xml)"
                   : "recordings (.wav, .flac, .ogg, .opus, .mp3, ...)");
  }
  std::set<fs::path> stems;
  for (const auto* kind : {&files, &pages})
    for (const std::string& file : *kind) stems.insert(fs::path(file).replace_extension());
  std::erase_if(others, [&](const fs::path& file) { return is_beside(file, stems); });
  tell_others(folder, wanted, others, not_walked);
  const size_t before = inputs.size();
  for (const std::string& page : pages) add_page(page, inputs);
  // By the names that pages give, and by their own: a page that cannot be read has an image, too.
  std::set<fs::path> images_of_pages, names_of_pages;
  for (const std::string& page : pages) names_of_pages.insert(fs::path(page).replace_extension());
  for (size_t i = before; i < inputs.size(); ++i) {
    images_of_pages.insert(fs::path(inputs[i].file.path).lexically_normal());
  }
  for (const std::string& file : files) {
    const bool is_of_page = images_of_pages.contains(fs::path(file).lexically_normal()) ||
                            names_of_pages.contains(fs::path(file).replace_extension());
    if (!is_of_page) add_file(file, wanted, inputs);
  }
  for (size_t i = before; i < inputs.size(); ++i) {
    const ModelInput& in = inputs[i];
    const fs::path path = in.page ? in.page->path : in.file.path;
    inputs[i].below = path.parent_path().lexically_relative(folder).string();
  }
}

// An endless stream would take all memory.
std::string read_standard_input() {
  constexpr size_t most = size_t{1} << 30, piece = size_t{1} << 20;
  std::string bytes;
  for (size_t n = 1; n > 0 && bytes.size() <= most;) {
    const size_t before = bytes.size();
    bytes.resize(before + piece);
    n = std::fread(bytes.data() + before, 1, piece, stdin);
    bytes.resize(before + n);
  }
  if (bytes.size() > most) {
    fail_input("standard input holds more than ", most,
               " bytes; give so long a recording as a file, or use --stream");
  }
  return bytes;
}

Matrix read_matrix(const ModelInput& input) {
  Matrix features;
  if (input.file.path == "-") {
    const std::string bytes = read_standard_input();
    const auto content = std::as_bytes(std::span(bytes));
    // The length of a JSON header in eight bytes, then the header.
    const bool is_safetensors = bytes.size() > 8 && bytes[8] == '{';
    features = is_safetensors ? features_from(SafetensorsFile(content, "standard input"), "")
                              : features_from_npy(content, "standard input");
  } else if (!input.key.empty()) {
    features = features_from(SafetensorsFile(input.file.path), input.key);
  } else {
    features = read_feature_file(input.file, input.key);
  }
  return features;
}

}  // namespace

Matrix read_scores(const ModelInput& input) {
  if (input.kind != InputKind::features) {
    fail_input(input.name, ": is no .npy or .safetensors file of a model's outputs");
  }
  return read_matrix(input);
}

std::vector<ModelInput> inputs_of(const std::vector<std::string>& words, InputKind wanted) {
  std::vector<ModelInput> inputs;
  for (const std::string& word : words) {
    std::error_code ignored;
    if (word == "-") {
      inputs.emplace_back();
      inputs.back().name = inputs.back().file.path = word;
      inputs.back().kind = wanted;
    } else if (fs::is_directory(word, ignored)) {
      add_folder(word, wanted, inputs);
    } else if (has_ending(word, ".jsonl")) {
      for (const ManifestEntry& e : read_manifest(word).entries) {
        inputs.push_back(from_manifest(e));
      }
    } else if (wanted == InputKind::image && has_ending(word, ".xml")) {
      add_page(word, inputs);
    } else {
      add_file(word, wanted, inputs);
    }
  }
  return inputs;
}

std::string narrow_sound(double hertz, int32_t sample_rate, const std::string& name) {
  const int32_t rate = true_rate(sample_rate, hertz);
  if (rate == sample_rate) return {};
  return str(name, ": has nothing above ", std::lround(hertz), " Hz, as a recording of ", rate,
             " Hz; the model reads ", sample_rate, " Hz");
}

Waveform read_audio(const ModelInput& input, int32_t sample_rate, InputExtent* extent) {
  Waveform audio;
  std::string name = input.name;
  if (input.file.path != "-") {
    audio = SndfileReader().read(input.file, sample_rate, input.segment);
  } else {
    name = "standard input";
    const std::string bytes = read_standard_input();
    audio = decode_audio(std::as_bytes(std::span(bytes)), name, sample_rate, input.segment);
  }
  if (extent) {
    extent->seconds = audio.seconds();
    extent->narrow = narrow_sound(bandwidth_of(audio.samples, sample_rate), sample_rate, name);
  }
  return audio;
}

GreyImage read_image(const ModelInput& input, const ImageReader& images, LineDirection direction) {
  if (!input.problem.empty()) fail_input(input.problem);
  if (input.file.path != "-") {
    ImageRegion region = input.region;
    if (direction == LineDirection::downwards) region.baseline.clear();
    return read_region(images, input.file, region);
  }
  const std::string bytes = read_standard_input();
  return decode_image(std::as_bytes(std::span(bytes)), "standard input");
}

void require_kind(const ModelInput& input, const Recognizer& model, InputKind wanted) {
  constexpr std::array one = {"a recording", "ready features", "an image"};
  constexpr std::array many = {"recordings", "ready features", "images"};
  if (input.kind == wanted) return;
  const char* const kind =
      has_ending(input.name, ".xml") ? "a page of lines" : one.at(static_cast<size_t>(input.kind));
  fail_input(input.name, ": holds ", kind, ", ", model.file(), " reads ",
             many.at(static_cast<size_t>(wanted)));
}

Matrix read_features(const ModelInput& input, const Recognizer& model, const ImageReader& images,
                     InputExtent* extent, GreyImage* picture) {
  const FeaturesConfig& f = model.description().config.features;
  require_kind(input, model, input_kind(f.type));
  Matrix features;
  switch (input.kind) {
    case InputKind::features:
      features = read_matrix(input);
      require_finite(features, input.name);
      break;
    case InputKind::image: {
      const LineConfig& line = f;
      GreyImage image = read_image(input, images, line.direction);
      extent->image = image.info();
      line.require_line(image.info(), input.name);
      if (input.region.is_whole()) {
        const bool is_file = input.file.path != "-";
        extent->warning = page_warning(image, line, is_file ? input.name : "standard input");
        if (is_file && extent->warning.empty())
          extent->warning = pictures_warning(images.pages(input.file), input.name);
      } else if (input.page && input.name == name_of(*input.page, input.page->lines.front())) {
        extent->warning = input.page->warning;  // of the whole page, once
      }
      features = model.features(image, input.name);
      extent->frames = features.frames;
      if (picture) *picture = std::move(image);
      break;
    }
    case InputKind::recording: {
      const Waveform audio = read_audio(input, f.rate, extent);
      features = model.features(audio);
      break;
    }
  }
  const int64_t wanted = model.description().sizes.features;
  if (features.frames > 0 && features.dim != wanted) {
    fail_input(input.name, ": has ", features.dim, " features per frame, ", model.file(), " reads ",
               wanted);
  }
  if (features.frames == 0 && model.description().config.task != Task::ctc) {
    fail_input(input.name, ": is shorter than a single frame");
  }
  return features;
}

bool attempt(const std::function<void()>& action,
             const std::function<void(const std::string&)>& tell) {
  try {
    action();
    return true;
  } catch (const InputError& e) {
    tell ? tell(e.what()) : tell_error(e.what());
    return false;
  }
}

}  // namespace rondo
