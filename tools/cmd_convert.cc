// rondo convert: models of other programs, and for them.
#include <rondo/version.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "engine/data/features/endings.h"
#include "engine/io/file.h"
#include "engine/io/output_file.h"
#include "engine/train/model/kraken_model.h"
#include "engine/train/model/model_json.h"
#include "engine/train/model/tesseract_model.h"
#include "engine/train/onnx/export_model.h"
#include "kernels/base/error.h"
#include "tools/command.h"

namespace rondo {
namespace {

struct ConvertOptions {
  std::string model, out, input = "auto";
  bool stream = false;
};

bool is_tesseracts(const std::string& path) { return has_ending(path, ".traineddata"); }

// The file, where it is one of kraken's.
std::optional<SafetensorsFile> open_krakens(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  if (has_ending(path, ".mlmodel")) {
    fail_input(path,
               ": is a model in kraken's older format, which is not read; kraken writes it in "
               "the newer one: ketos convert -o model.safetensors ",
               path);
  }
  SafetensorsFile file{std::filesystem::path(path)};
  if (!is_kraken_model(file)) return std::nullopt;
  return file;
}

void save(const std::string& path, const ForeignModel& model) {
  std::vector<TensorToWrite> tensors;
  for (const ForeignModel::Tensor& t : model.tensors) {
    const auto bytes = std::as_bytes(std::span(t.values));
    tensors.push_back(
        {t.name, DType::f32, t.shape, nullptr, [bytes](uint64_t offset, std::span<std::byte> into) {
           std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
         }});
  }
  save_model(path, tensors, model.description);
}

void write_onnx(const ConvertOptions& o, const SafetensorsFile& file) {
  const ModelDescription d = ModelDescription::from_metadata(file.metadata(), file.name());
  int64_t weights = 0;
  for (const StoredTensor& t : file.tensors()) weights += t.numel();
  OnnxOptions options;
  options.input = o.input == "features" ? OnnxInput::features : OnnxInput::automatic;
  options.streams = o.stream;
  options.version = RONDO_VERSION;
  options.metadata = model_json(o.model, d, weights, RONDO_VERSION).dump_replacing();
  replace_text_file(o.out, onnx_of_model(file, options));
}

int run_convert(const ConvertOptions& o) {
  const bool is_onnx = has_ending(o.out, ".onnx");
  if (!is_onnx && (o.input != "auto" || o.stream))
    throw WrongUsage("--input and --stream are for .onnx");
  const OutputFile out(o.out, "the result");
  for (const std::string& file : files_of_model(o.model)) out.require_not(file, "the model");
  std::vector<std::string> warnings;
  const char* to = "kraken's";
  std::vector<std::string> remarks;
  if (is_onnx && (is_tesseracts(o.model) || open_krakens(o.model)))
    fail_input(o.model, ": is of another program; convert it to rondo's first, then to ONNX");
  if (is_tesseracts(o.model)) {
    const FileBytes file(o.model, FileBytes::Mode::map);
    const ForeignModel model = read_tesseract_model(file.bytes(), o.model);
    save(o.out, model);
    remarks = model.remarks;
    to = "rondo's";
  } else if (const auto kraken = open_krakens(o.model)) {
    const ForeignModel model = read_kraken_model(*kraken);
    save(o.out, model);
    remarks = model.remarks;
    to = "rondo's";
  } else if (is_onnx) {
    write_onnx(o, open_model(o.model, &warnings));
    to = "ONNX's";
  } else {
    remarks = write_kraken_model(o.out, open_model(o.model, &warnings));
  }
  for (const std::string& w : warnings) warn(w);
  for (const std::string& r : remarks) warn(o.model + ": " + r);
  std::printf("%s: a model in %s format\n", o.out.c_str(), to);
  return 0;
}

}  // namespace

void add_convert(Command& program) {
  Command& command = program.add_command(
      "convert", "Models of kraken and Tesseract for rondo, and of rondo for kraken and ONNX");
  auto o = std::make_shared<ConvertOptions>();
  command
      .add_option("model", o->model,
                  "a model of kraken 7 (.safetensors) or of Tesseract 4 or 5 (.traineddata), or a "
                  "checkpoint directory or model file of rondo")
      .required()
      .check(check_file_name);
  command
      .add_option("out", o->out,
                  "the file to write: rondo's model of the others', kraken's model of rondo's "
                  "(lines of text), ONNX of rondo's (.onnx)")
      .required()
      .check(check_file_name);
  command
      .add_option("--input", o->input,
                  "of ONNX: auto, which is samples for sound, else features; features, frames "
                  "that are not normalised")
      .one_of({"auto", "features"})
      .show_default();
  command.add_flag("--stream", o->stream,
                   "of ONNX: sequences arrive in parts, and what layers remember is an input and "
                   "an output");
  command.footer(
      "\nExample:  rondo convert kraken.safetensors model.safetensors\n"
      "          rondo convert deu.traineddata model.safetensors\n"
      "          rondo convert run for-kraken.safetensors\n"
      "          rondo convert run model.onnx\n");
  command.action([o] { return run_convert(*o); });
}

}  // namespace rondo
