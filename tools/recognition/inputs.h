// What a trained model is given to say something of: recordings, ready features, images of lines or
// pages of lines, manifests of these, folders of these, standard input.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/audio/waveform.h"
#include "engine/data/image/grey_image.h"
#include "engine/data/image/line_features.h"
#include "engine/data/manifest.h"
#include "engine/io/json.h"
#include "engine/page/page_file.h"
#include "engine/train/recognition/recognizer.h"

namespace rondo {

struct ModelInput {
  std::string name;      // as it was given; a part of a recording has its seconds behind it
  FilePart file;         // "-": standard input
  std::string key = {};  // which tensor of a .safetensors file
  AudioSegment segment = {};
  InputKind kind = InputKind::recording;
  ImageRegion region = {};                    // of an image
  std::shared_ptr<const PageFile> page = {};  // that it is a line of; nullptr: none
  std::string below = {};    // of a file in a folder that was given: the folders between
  std::string problem = {};  // why it cannot be read, where that is known already: a sentence
  Json known = Json();       // what a manifest says of it, references among that; else null
};

// How much an input is.
struct InputExtent {
  double seconds = 0;                // of a recording, or of an utterance of a stream
  std::optional<double> begin = {};  // seconds, of such an utterance
  ImageInfo image = {};      // of an image, or of its region, before it is shaped and scaled
  int64_t frames = 0;        // that the model reads of an image
  std::string warning = {};  // a sentence; mostly empty
  // Of a recording that reaches less far up than the model hears: a sentence.
  std::string narrow = {};
};

// The words of a command line, in their order. A manifest (.jsonl) stands for its lines, a folder
// for the recordings, .npy files or images in it, by `wanted`, at any depth, sorted by name; a
// .safetensors file for its tensors; a page (PAGE-XML, ALTO) for its lines. In a folder the image
// of a page is no line, and what else is there is told on standard error, but for texts beside an
// input. Throws InputError for a manifest or page that cannot be read and for a folder that holds
// none.
std::vector<ModelInput> inputs_of(const std::vector<std::string>& words, InputKind wanted);

// The outputs of a model, [frames, classes]. Throws InputError.
Matrix read_scores(const ModelInput& input);
// The recording, or all of standard input as one, at `sample_rate`. `extent`, where it is given,
// gets what is told of a recording. Throws InputError.
Waveform read_audio(const ModelInput& input, int32_t sample_rate, InputExtent* extent = nullptr);
// Of sound at the model's rate that reaches up to `hertz`: a sentence, where it was recorded for a
// lower rate, which is not what the model has learnt; else nothing.
std::string narrow_sound(double hertz, int32_t sample_rate, const std::string& name);
// The image or its region, or standard input as one; lines that are written downwards are not
// straightened along baselines. Throws InputError.
GreyImage read_image(const ModelInput& input, const ImageReader& images, LineDirection direction);
// Throws InputError where it is not what the model reads, `wanted`.
void require_kind(const ModelInput& input, const Recognizer& model, InputKind wanted);
// What the model reads of an input; `picture`, where it is given, gets an input's image. Throws
// InputError.
Matrix read_features(const ModelInput& input, const Recognizer& model, const ImageReader& images,
                     InputExtent* extent, GreyImage* picture = nullptr);

}  // namespace rondo
