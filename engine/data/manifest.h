// Manifests: one JSON object per line (JSONL), one line per utterance, as NeMo has them.
//
//   audio_filepath     recording; relative paths resolve against the manifest's folder
//   offset             seconds into it at which the utterance begins (default 0)
//   duration           seconds; without it the recording's header tells
//   channel            which one of the recording, from 0; without it their mean
//   features_filepath  ready features instead of a recording: .npy or .safetensors
//   image_filepath     the image of a text line instead of a recording
//   region             where on the image, that of a page, the line is: a box [left, top, width,
//                      height] or a polygon [[x, y], ...] in pixels
//   baseline           what its letters stand on, [[x, y], ...], beside a region: the line is
//                      straightened along it (image_region.h)
//   bytes              [first, count]: the recording, the image or the features (.npy, a matrix
//                      of Kaldi's) are these bytes of the file, an archive
//   features_key       which tensor of a .safetensors file (default: the only one, or "features")
//   text               transcript
//   label              class of the whole utterance: an integer >= 0, or its name, a string
//   target             numbers to regress to, one or a list
//   labels             label sequence as integers >= 1 (0 is the blank), instead of text
//   frame_labels       class of each frame, a list of integers >= 0
//   speaker            string or number, kept as a string
// null means that a field is absent. Everything else is kept in `extra`, untouched, and so is a
// target (text, label, target, labels, frame_labels) whose value is none: a dataset that wants it
// says what is wrong, by `wrong_targets`, others do not care. Empty lines are skipped; a byte order
// mark at the start is allowed. Exactly one of audio_filepath, features_filepath and image_filepath
// must be there.
//
// Errors: InputError that names file:line and what was expected.
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/data/audio/waveform.h"
#include "engine/data/image/image_region.h"

namespace rondo {

// What an utterance is read from.
enum class InputKind : uint8_t { recording, features, image };
// "the recording", "the features", "the image".
const char* name_of(InputKind kind);
// "audio_filepath", ...
const char* field_of(InputKind kind);
// What people call one of such data: "line" of images, else "utterance".
const char* noun_of(InputKind kind);

struct ManifestEntry {
  int64_t line = 0;  // from 1
  std::string path;  // resolved
  std::string path_as_written;
  InputKind kind = InputKind::recording;
  std::string features_key;
  uint64_t first_byte = 0, byte_count = FilePart::to_the_end;
  ImageRegion region;  // of an image
  double offset = 0;
  std::optional<double> duration;
  std::optional<int32_t> channel;
  std::optional<std::string> text;
  std::optional<int32_t> label;
  std::string class_name;  // instead of a number; a dataset that knows the names sets the number
  std::vector<float> target;
  std::optional<std::vector<int32_t>> labels;
  std::vector<int32_t> frame_labels;
  std::string speaker;
  std::string extra;  // the other fields, a JSON object; empty if there are none
  // Fields and sentences: "label", "\"label\" is 1.5, expected a class, ...".
  std::vector<std::pair<std::string, std::string>> wrong_targets;

  // Where it lies.
  FilePart file() const { return {path, first_byte, byte_count}; }
  // The part of the recording that it is.
  AudioSegment segment() const;
  // What it is called where results are shown: its "id", if that is a string, else the path as
  // written, with the first byte, the region's corner, the channel, the features' key and the
  // offset behind it.
  std::string name() const;

  // Tells utterances apart in augmentation and dropout: a hash of the path as written, the first
  // byte, the region's corners, the offset, the channel and the features' key, so that it survives
  // moving the corpus and reordering the manifest.
  uint64_t key() const;
};

struct Manifest {
  std::string path;
  std::vector<ManifestEntry> entries;

  // "train.jsonl:17"
  std::string where(const ManifestEntry& entry) const;
  // The transcripts of the entries that have one.
  std::vector<std::string> transcripts() const;
};

// Throws InputError when the file cannot be read, a line is malformed, or there is no entry.
Manifest read_manifest(const std::string& path);
// The same from memory; `path` stands for the file in messages and for resolving.
Manifest parse_manifest(std::string_view content, const std::string& path);

// One line of JSON, without a line break; the fields that are set, with the path as written.
std::string to_json_line(const ManifestEntry& entry);
// Writes the file whole or not at all (a temporary file beside it, then renamed). Throws
// InputError.
void write_manifest(const std::string& path, const std::vector<ManifestEntry>& entries);

}  // namespace rondo
