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
#include "engine/train/model/pytorch_model.h"
#include "engine/train/model/tesseract_model.h"
#include "engine/train/onnx/export_model.h"
#include "kernels/base/error.h"
#include "tools/command.h"

namespace rondo {
namespace {

struct ConvertOptions {
  std::string model, out, to, like, input = "auto";
  bool stream = false;
};

bool is_tesseracts(const std::string& path) { return has_ending(path, ".traineddata"); }

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

void write_int8(const ConvertOptions& o, const SafetensorsFile& file) {
  ModelDescription d = ModelDescription::from_metadata(file.metadata(), file.name());
  if (d.int8) fail_input(o.model, ": has weights of 8 bits already");
  d.config.training.dtype = DType::f32;
  d.int8 = true;
  std::vector<TensorToWrite> tensors;
  for (const StoredTensor& t : file.tensors()) {
    tensors.push_back({t.name, t.dtype, t.shape, t.bytes.data()});
  }
  save_model(o.out, tensors, d);
}

// A model of another program's; none: it is rondo's.
std::optional<ForeignModel> read_foreign(const ConvertOptions& o,
                                         std::vector<std::string>& warnings) {
  if (is_tesseracts(o.model)) {
    const FileBytes file(o.model, FileBytes::Mode::map);
    return read_tesseract_model(file.bytes(), o.model);
  }
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(o.model, ignored)) return std::nullopt;
  if (has_ending(o.model, ".mlmodel")) {
    fail_input(o.model,
               ": is a model in kraken's older format, which is not read; kraken writes it in "
               "the newer one: ketos convert -o model.safetensors ",
               o.model);
  }
  const SafetensorsFile file{std::filesystem::path(o.model)};
  if (is_kraken_model(file)) return read_kraken_model(file);
  if (!is_pytorch_model(file)) return std::nullopt;
  if (o.like.empty()) return read_pytorch_model(file, file);
  return read_pytorch_model(file, open_model(o.like, &warnings));
}

// What to write of a model of rondo's.
std::string target_of(const ConvertOptions& o) {
  if (!o.to.empty()) return o.to;
  return has_ending(o.out, ".onnx") ? "onnx" : "kraken";
}

int run_convert(const ConvertOptions& o) {
  std::string to = target_of(o);
  if (to != "onnx" && (o.input != "auto" || o.stream))
    throw WrongUsage("--input and --stream are for ONNX");
  const OutputFile out(o.out, "the result");
  for (const std::string& file : files_of_model(o.model)) out.require_not(file, "the model");
  if (!o.like.empty())
    for (const std::string& file : files_of_model(o.like))
      out.require_not(file, "a file of --like");
  std::vector<std::string> warnings, remarks;
  if (const auto model = read_foreign(o, warnings)) {
    if (!o.to.empty() || to == "onnx")
      fail_input(o.model, ": is of another program; convert it to rondo's first");
    save(o.out, *model);
    remarks = model->remarks;
    to = "rondo";
  } else if (!o.like.empty()) {
    fail_input(o.model, ": has no weights by PyTorch's names, for which --like is");
  } else if (to == "onnx") {
    write_onnx(o, open_model(o.model, &warnings));
  } else if (to == "int8") {
    write_int8(o, open_model(o.model, &warnings));
  } else if (to == "pytorch") {
    write_pytorch_model(o.out, open_model(o.model, &warnings));
  } else {
    remarks = write_kraken_model(o.out, open_model(o.model, &warnings));
  }
  for (const std::string& w : warnings) warn(w);
  for (const std::string& r : remarks) warn(o.model + ": " + r);
  const char* const whose = to == "onnx"      ? "ONNX's"
                            : to == "pytorch" ? "PyTorch's"
                            : to != "kraken"  ? "rondo's"
                                              : "kraken's";
  std::printf("%s: a model in %s format%s\n", o.out.c_str(), whose,
              to == "int8" ? ", with weights of 8 bits" : "");
  return 0;
}

}  // namespace

void add_convert(Command& program) {
  Command& command = program.add_command("convert",
                                         "Models of kraken, Tesseract and PyTorch for rondo, and "
                                         "of rondo for kraken, ONNX and PyTorch");
  auto o = std::make_shared<ConvertOptions>();
  command
      .add_option("model", o->model,
                  "a checkpoint directory or model file of rondo; or a model of kraken 7 "
                  "(.safetensors), of Tesseract 4 or 5 (.traineddata), or weights by PyTorch's "
                  "names (.safetensors)")
      .required()
      .check(check_file_name);
  command
      .add_option("out", o->out,
                  "the file to write: rondo's model of the others', or what --to says of rondo's")
      .required()
      .check(check_file_name);
  command
      .add_option("--to", o->to,
                  "of a model of rondo's; without it onnx for a file that ends with .onnx, else "
                  "kraken (lines of text); int8: a model of rondo's of a quarter of the size, "
                  "whose products CPUs compute with 8 bits")
      .one_of({"kraken", "onnx", "pytorch", "int8"});
  command
      .add_option("--like", o->like,
                  "of weights by PyTorch's names: the model of rondo's that they are of, "
                  "where the file does not say it")
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
      "          rondo convert run model.onnx\n"
      "          rondo convert run torch.safetensors --to pytorch\n"
      "          rondo convert run small.safetensors --to int8\n"
      "          rondo convert tuned.safetensors model.safetensors --like run\n");
  command.action([o] { return run_convert(*o); });
}

}  // namespace rondo
