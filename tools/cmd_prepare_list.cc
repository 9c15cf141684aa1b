// rondo prepare folder, csv, librispeech, ...: manifests for data that are there already.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "engine/data/audio/audio.h"
#include "engine/data/features/endings.h"
#include "engine/data/features/files.h"
#include "engine/data/image/image.h"
#include "engine/io/output_file.h"
#include "engine/text/reading_order.h"
#include "engine/text/unicode.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/recipes.h"
#include "tools/command_line/text_options.h"
#include "tools/corpus/examination/list_corpus.h"
#include "tools/corpus/lists/list_files.h"
#include "tools/prepare/line_preview.h"
#include "tools/prepare/list_summary.h"
#include "tools/prepare/progress.h"

namespace rondo {
namespace {

using corpus::ListedUtterance;

struct ListOptions {
  std::vector<std::string> sources;  // folders or files, the last one OUT
  std::string audio_column, text_column, speaker_column, audio_folder, delimiter;
  bool speakers_in_folders = false, features = false;
  std::string replacements;
  std::string examine = "all", channel = "mix";
  corpus::Findings findings;  // while the list was made
  TextOptions text;
  std::string preview, config;     // of lines
  std::string direction = "auto";  // of lines
  corpus::FileChoice choice;       // of a folder
  PrepareListOptions prepare;
};

// "left", "right", "mix", or a number from 0.
int32_t channel_of(const std::string& word) {
  if (word == "mix") return -1;
  if (word == "left") return 0;
  if (word == "right") return 1;
  return std::stoi(word);
}

std::string check_channel(const std::string& word) {
  if (word == "mix" || word == "left" || word == "right") return "";
  const bool is_number =
      !word.empty() && word.size() < 4 && word.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? "" : "expected left, right, mix or a number from 0";
}

// What --only and --exclude have left.
void print_choice(const corpus::FileChoice& choice) {
  if (choice.is_all()) return;
  std::printf("not looked at, for --only and --exclude: %lld file%s\n",
              static_cast<long long>(choice.passed_over), choice.passed_over == 1 ? "" : "s");
  for (const std::string& pattern : choice.unused())
    std::printf("  '%s' fits no file\n", pattern.c_str());
}

// Leaves what is wanted of what a folder's own tables name.
void choose(std::vector<ListedUtterance>& list, const std::string& folder,
            corpus::FileChoice& choice) {
  namespace fs = std::filesystem;
  if (choice.is_all()) return;
  const fs::path root = fs::weakly_canonical(folder);
  std::erase_if(list, [&](const ListedUtterance& u) {
    const fs::path below = fs::path(u.file.path).lexically_relative(root);
    const bool is_below = !below.empty() && *below.begin() != "..";
    return !choice.takes(is_below ? below.string() : u.file.path);
  });
  if (list.empty())
    fail_input(folder, ": holds no recordings that --only and --exclude leave, of ",
               choice.passed_over);
}

int prepare(ListOptions& o, std::vector<ListedUtterance> list) {
  if (o.prepare.dev + o.prepare.test >= 1) {
    throw WrongUsage(str("--dev ", o.prepare.dev, " and --test ", o.prepare.test,
                         " leave nothing to train on: expected shares whose sum is below 1"));
  }
  const SndfileReader audio;
  const ImageFileReader images;
  o.prepare.examine = o.examine == "headers" ? Examine::headers : Examine::all;
  o.prepare.channel = channel_of(o.channel);
  o.prepare.text = o.text.rules();
  if (!o.replacements.empty()) o.prepare.text.replace = read_replacements(o.replacements);
  if (list.empty()) {
    const bool is_one = o.sources.empty();
    fail_input(is_one ? o.prepare.source : o.sources.front(), ": lists no recordings");
  }
  const InputKind kind = list.front().kind;
  const DataSummary s =
      prepare_list(std::move(list), {&audio, &images}, o.prepare, std::move(o.findings));
  print_summary(s, kind);
  print_choice(o.choice);
  const std::string out = printable(o.prepare.out);
  std::printf(
      "%s: manifests, lengths.svg and train.toml; train with rondo train %s/train.toml data=%s\n",
      out.c_str(), out.c_str(), out.c_str());
  if (kind == InputKind::image && !o.prepare.direction && s.direction == LineDirection::leftwards)
    std::printf(
        "most letters are written from right to left: train.toml has features.direction=rtl, which "
        "training with other settings needs, too (--direction)\n");
  return 0;
}

void add_list_options(Command& command, ListOptions* o) {
  PrepareListOptions& p = o->prepare;
  const auto share = [&](const char* name, double* value, const char* what) {
    command.add_option(name, *value, what).range(0.0, 0.9).type_name("FLOAT").show_default();
  };
  share("--dev", &p.dev, "share to validate with, where the data do not say");
  share("--test", &p.test, "share to test with, where the data do not say");
  command
      .add_option("--replace", o->replacements,
                  "a file of lines FROM=TO: what the texts write otherwise, before all else")
      .check(check_file_name);
  add_text_options(command, &o->text);
  command.add_flag("--strict", p.strict,
                   "what cannot be used is an error, once all was looked at; else it is left out");
  command.add_flag("--overwrite", p.overwrite,
                   "replace manifests that were edited, and keep those as .bak");
  command.add_option("--seed", p.seed, "of what is drawn for --dev and --test").show_default();
  command
      .add_option("--threads", p.threads,
                  "that open recordings; 0: one per CPU, eight where headers are read")
      .range(0, 4096)
      .type_name("INT");
}

// What is of sound alone.
void add_sound_options(Command& command, ListOptions* o) {
  command
      .add_option(
          "--examine", o->examine,
          "all: decode the recordings, of more than 20,000 so many that are drawn; headers: "
          "read their headers alone")
      .one_of({"all", "headers"})
      .show_default();
  command
      .add_option("--channel", o->channel,
                  "of recordings with several: left, right, mix (their mean), or a number from 0")
      .check(check_channel)
      .show_default();
  command.add_flag("--salvage", o->prepare.salvage,
                   "write what there is of recordings that are cut off, and use it");
}

using Lister = std::function<std::vector<ListedUtterance>(ListOptions&)>;

// A layout that is a folder.
Command& add_folder_layout(Command& parent, const char* name, const char* what, const char* dir,
                           const std::shared_ptr<ListOptions>& o, const Lister& list) {
  Command& command = parent.add_command(name, what);
  o->prepare.kind = name;
  command.add_option("dir", o->prepare.source, dir).required();
  command.add_option("out", o->prepare.out, "folder of the manifests").required();
  add_list_options(command, o.get());
  if (std::string_view(name) != "lines") add_sound_options(command, o.get());
  const auto patterns = [&](const char* option, std::vector<std::string>* to, const char* help) {
    command.add_option(option, *to, help).one_word().type_name("GLOB");
  };
  patterns("--only", &o->choice.only,
           "only files that this fits: a name, or a path below the folder, with * and ?; may be "
           "given several times");
  patterns("--exclude", &o->choice.exclude,
           "no files that this fits, nor what is in folders of this name; may be given several "
           "times");
  command.footer(str("\nExample:  rondo prepare ", name, " data mine --lowercase\n"));
  command.action([o, list] {
    o->prepare.progress = progress_line("recordings");
    return prepare_unless_stopped([&] {
      std::vector<ListedUtterance> all = list(*o);
      choose(all, o->prepare.source, o->choice);
      return prepare(*o, std::move(all));
    });
  });
  return command;
}

void add_folder(Command& parent) {
  auto o = std::make_shared<ListOptions>();
  Command& command =
      add_folder_layout(parent, "folder", "Manifests for recordings with a .txt beside each",
                        "folder of recordings and texts, at any depth", o, [](ListOptions& given) {
                          return corpus::list_folder(given.prepare.source,
                                                     given.speakers_in_folders, &given.findings);
                        });
  command.add_flag("--speakers-in-folders", o->speakers_in_folders,
                   "the folder that a recording is in names its speaker");
}

void add_classes(Command& parent) {
  auto o = std::make_shared<ListOptions>();
  Command& command = add_folder_layout(
      parent, "classes", "Manifests for recordings in a folder for each class",
      "folder of the classes' folders, or of train, dev and test with such", o,
      [](const ListOptions& given) {
        if (given.text.rules() != TextRules() || !given.replacements.empty())
          throw WrongUsage(
              "--lowercase, --replace and the like are for texts, and classes are named by their "
              "folders");
        return corpus::list_classes(given.prepare.source);
      });
  command.footer("\nExample:  rondo prepare classes sounds mine\n");
}

// Where there are no settings, those of images by default.
Config preview_config(const ListOptions& o) {
  if (!o.config.empty()) {
    const Config config = load_file_or_recipe(o.config);
    if (config.features.type != FeatureType::image) {
      fail_input(o.config, ": features.type is not \"image\": its settings are not for lines");
    }
    require_data_settings(config);
    return config;
  }
  Config config;
  config.features.type = FeatureType::image;
  return config;
}

int prepare_lines(ListOptions& o) {
  std::optional<Config> config;
  if (!o.preview.empty()) {
    require_preview_name(o.preview);
    require_folder_of(o.preview);
    config = preview_config(o);
  } else if (!o.config.empty()) {
    throw WrongUsage("--config is for --preview");
  }
  if (o.direction == "ltr") o.prepare.direction = LineDirection::rightwards;
  if (o.direction == "ttb") o.prepare.direction = LineDirection::downwards;
  if (o.direction == "rtl") o.prepare.direction = LineDirection::leftwards;
  std::vector<ListedUtterance> list = corpus::list_lines(o.prepare.source, &o.choice);
  // Columns of a line that is written downwards lie across the page.
  if (o.prepare.direction == LineDirection::downwards)
    for (ListedUtterance& u : list) u.region.baseline.clear();
  const int code = prepare(o, std::move(list));
  if (config) {
    draw_line_preview(*config, o.prepare.out + "/train.jsonl", o.preview);
    std::printf("%s: what a network sees of them\n", o.preview.c_str());
  }
  return code;
}

void add_lines(Command& parent) {
  const auto o = std::make_shared<ListOptions>();
  Command& command = add_folder_layout(
      parent, "lines",
      "Manifests for images of text lines with a .gt.txt beside each, and pages as PAGE-XML or "
      "ALTO",
      "folder of images and texts, or of pages, at any depth", o,
      [](const ListOptions& given) { return corpus::list_lines(given.prepare.source); });
  command
      .add_option(
          "--preview", o->preview,
          "draw some lines as a network sees them in training (.svg, or .png without texts)")
      .check(check_file_name);
  command
      .add_option("--config", o->config, "with --preview: the settings of features and distortions")
      .check(check_file_name);
  command.add_flag("--cut", o->prepare.cut,
                   "write lines of pages as images, which training then reads sooner");
  command
      .add_option("--direction", o->direction,
                  "how the lines are written: left to right, right to left, top to bottom; auto: "
                  "as most letters of the texts, not from top to bottom")
      .one_of({"auto", "ltr", "rtl", "ttb"})
      .show_default();
  command.footer(
      "\nExample:  rondo prepare lines scans mine --preview sheet.svg --config lines.toml\n");
  command.action([o] {
    o->prepare.progress = progress_line("lines");
    return prepare_unless_stopped([&] { return prepare_lines(*o); });
  });
}

char delimiter_of(const ListOptions& o, const std::string& file) {
  if (o.delimiter == "tab") return '\t';
  if (o.delimiter == "bar") return '|';
  if (o.delimiter == "semicolon") return ';';
  if (o.delimiter == "comma") return ',';
  return has_ending(file, ".tsv") || has_ending(file, ".tsv.gz") ? '\t' : '\0';
}

// A table of paths that lead nowhere is most likely relative to another folder than its own.
void require_a_recording(const std::string& table, const std::vector<ListedUtterance>& list) {
  constexpr size_t most = 10000;  // of a longer table these will do
  const auto end = list.begin() + static_cast<ptrdiff_t>(std::min(list.size(), most));
  const auto names_a_file = [](const ListedUtterance& u) { return !u.file.path.empty(); };
  const auto first = std::find_if(list.begin(), end, names_a_file);
  const auto is_there = [](const ListedUtterance& u) {
    std::error_code ignored;
    return std::filesystem::exists(u.file.path, ignored);
  };
  if (first == end || std::any_of(first, end, is_there)) return;
  fail_input(table, ": none of its recordings is there, the first is ", first->file.path,
             "; --audio-folder says in which folder they are, if not in that of the table");
}

void add_csv(Command& parent) {
  Command& command = parent.add_command("csv", "Manifests for a table with a row per recording");
  auto o = std::make_shared<ListOptions>();
  o->prepare.kind = "csv";
  command.add_option("file", o->prepare.source, "CSV or TSV; its first line names the columns")
      .required();
  command.add_option("out", o->prepare.out, "folder of the manifests").required();
  command.add_option(
      "--audio-column", o->audio_column,
      "column of the recordings' paths; default: the one called path, file, audio, ...");
  command.add_option(
      "--text-column", o->text_column,
      "column of the texts; default: the one called text, sentence, transcript, ...");
  command.add_option("--speaker-column", o->speaker_column, "column of the speakers");
  command.add_option("--audio-folder", o->audio_folder,
                     "what paths are relative to; default: the folder of the table");
  command
      .add_option("--delimiter", o->delimiter,
                  "default: tab for .tsv, otherwise the one that the first line has")
      .one_of({"comma", "tab", "bar", "semicolon"});
  add_list_options(command, o.get());
  add_sound_options(command, o.get());
  command.footer(
      "\nExample:  rondo prepare csv clips.csv mine --audio-column file --text-column sentence\n");
  command.action([o] {
    o->prepare.progress = progress_line("recordings");
    corpus::TableLayout layout;
    layout.files = {{o->prepare.source, ""}};
    layout.delimiter = delimiter_of(*o, o->prepare.source);
    layout.audio = o->audio_column;
    layout.text = {o->text_column};
    layout.speaker = o->speaker_column;
    layout.folder = o->audio_folder;
    return prepare_unless_stopped([&] {
      if (!layout.folder.empty()) corpus::existing_folder(layout.folder);
      std::string chosen;
      std::vector<ListedUtterance> list = list_table(layout, &chosen);
      require_a_recording(o->prepare.source, list);
      if (!chosen.empty()) std::printf("%s\n", printable(chosen, LineBreaks::kept).c_str());
      return prepare(*o, std::move(list));
    });
  });
}

// A layout that is one file or several.
void add_files_layout(Command& parent, const char* name, const char* what, const char* files,
                      const char* example, const Lister& list) {
  Command& command = parent.add_command(name, what);
  auto o = std::make_shared<ListOptions>();
  o->prepare.kind = name;
  command.add_option("out", o->prepare.out, "folder of the manifests").required();
  command.add_option("files", o->sources, files).required();
  add_list_options(command, o.get());
  add_sound_options(command, o.get());
  command.footer(str("\nExample:  rondo prepare ", name, " mine ", example, "\n"));
  command.action([o, list, name] {
    if (std::error_code unknown; std::filesystem::is_regular_file(o->prepare.out, unknown)) {
      throw WrongUsage(
          str("'", o->prepare.out,
              "' is a file, and the folder of the manifests comes first: rondo prepare ", name,
              " FOLDER ", o->prepare.out));
    }
    o->prepare.progress = progress_line("recordings");
    return prepare_unless_stopped([&] { return prepare(*o, list(*o)); });
  });
}

void add_kaldi(Command& parent) {
  auto o = std::make_shared<ListOptions>();
  Command& command =
      add_folder_layout(parent, "kaldi", "Manifests for a data directory of Kaldi",
                        "folder of wav.scp or feats.scp, text and perhaps segments and utt2spk", o,
                        [](const ListOptions& given) {
                          return corpus::list_kaldi(given.prepare.source, given.features);
                        });
  command.add_flag("--features", o->features,
                   "the matrices of feats.scp; default where there is no wav.scp");
}

}  // namespace

void add_prepare_lists(Command& parent) {
  const auto options = [] { return std::make_shared<ListOptions>(); };
  add_folder(parent);
  add_classes(parent);
  add_lines(parent);
  add_csv(parent);
  add_folder_layout(
      parent, "common-voice", "Manifests for a language of Common Voice",
      "folder of train.tsv, dev.tsv, test.tsv and clips/", options(),
      [](const ListOptions& o) { return list_table(corpus::common_voice(o.prepare.source)); });
  add_folder_layout(
      parent, "librispeech", "Manifests for LibriSpeech, or what is laid out like it",
      "folder of SPEAKER/CHAPTER/*.trans.txt, or of several such", options(),
      [](const ListOptions& o) { return corpus::list_librispeech(o.prepare.source); });
  add_folder_layout(parent, "ljspeech", "Manifests for LJSpeech, or what is laid out like it",
                    "folder of metadata.csv and wavs/", options(), [](const ListOptions& o) {
                      return list_table(corpus::lj_speech(o.prepare.source));
                    });
  add_files_layout(
      parent, "deepspeech",
      "Manifests for CSV files of DeepSpeech and Coqui (wav_filename, transcript)",
      "the tables; train=FILE, dev=FILE, test=FILE say what each is for, else their names",
      "clips/train.csv clips/dev.csv clips/test.csv",
      [](const ListOptions& o) { return list_table(corpus::deep_speech(o.sources)); });
  add_kaldi(parent);
  add_files_layout(
      parent, "nemo", "Manifests for manifests of NeMo, looked at and divided",
      "JSON lines with audio_filepath and text; train=FILE, dev=FILE, test=FILE say what each is "
      "for, else their names",
      "train_manifest.json dev_manifest.json",
      [](const ListOptions& o) { return corpus::list_nemo(o.sources); });
  add_files_layout(
      parent, "tar", "Manifests for recordings in tar archives, which are read where they are",
      "archives with a .txt or .json beside each recording; a folder: the .tar files in it",
      "shards/train-*.tar", [](const ListOptions& o) { return corpus::list_tar(o.sources); });
}

}  // namespace rondo
