// Data sets as people have them, read as lists of utterances.
//
// Errors: InputError that names the file and what was expected where there is no list: a missing
// table, a column that is not there. What is wrong with single entries ends nothing: they are
// listed with their problem, and who uses the list says so (list_corpus.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/data/manifest.h"
#include "tools/corpus/lists/file_choice.h"
#include "tools/corpus/lists/findings.h"

namespace rondo::corpus {

struct ListedUtterance {
  std::string where;   // for messages: "clips.tsv:7"; empty: the file's name says it
  std::string id;      // what it is called; empty: the file's name says it
  FilePart file;       // the recording, ready features or an image; its path is absolute
  ImageRegion region;  // of the image of a page
  // A sentence why it cannot be used, where that is known, and of which kind that is; mostly empty.
  std::string problem;
  Finding finding = Finding::unreadable;
  InputKind kind = InputKind::recording;
  // What else ought to be said of it.
  struct Note {
    Finding finding;
    std::string what;
  };
  std::vector<Note> notes;
  double seconds_per_frame = 0;      // of ready features
  double offset = 0, duration = -1;  // seconds; a negative duration is to the end
  int32_t channel = -1;              // of the recording; negative: the mean of all
  // Of a recording that was opened: Hz, how far up it reaches (0: not known), and whether it ends
  // before its header says.
  int32_t sample_rate = 0;
  double bandwidth = 0;
  bool is_cut_off = false;
  bool is_light = false;  // of the image of a line: light ink on darker paper
  bool has_text = true;   // false: none was found
  int64_t columns = 0;    // of the image of a line once it is scaled to the usual height
  std::string text;
  std::string text_file;  // that is still to be read for the text; empty: none
  std::string label;      // the name of its class, instead of a text
  std::string speaker;    // empty: not known
  std::string folder;     // that images lie in, a book say, below the one that was listed
  std::string page;       // that a line is from, below the folder that was listed; empty: not known
  std::string split;      // train, dev or test; empty: not said
};

// Recordings at any depth, each with its text beside it: a.wav and a.txt, in capitals or not; or
// all elsewhere in the folder (find_texts_elsewhere()). What
// is a recording its name says or, where it says nothing, its first bytes. With
// `speakers_in_folders` the name of the folder that a recording is in is its speaker's. Folders
// called train, dev, valid, validation, val or test at the top are the splits. Listed
// with a problem are texts without a recording, a second recording of the same name, and what is no
// file. Files that are neither are told to `findings`, where it is given.
std::vector<ListedUtterance> list_folder(const std::string& folder,
                                         bool speakers_in_folders = false,
                                         Findings* findings = nullptr);

// Recordings at any depth in a folder for each class, whose name is that of the class. Folders
// called train, dev, valid, validation, val or test, where there are no others at the top, are the
// splits, and have the classes' folders.
std::vector<ListedUtterance> list_classes(const std::string& folder);

// Images of text lines at any depth, each with its text beside it: a.png and a.gt.txt, or a.txt.
// The image may be called a.nrm.png or a.bin.png, as other programs call what they have normalised
// or made black and white; of several for one text the plain one is taken. Folders called train,
// dev, valid, validation, val or test at the top are the splits. A text without an image is listed
// with the image that is missing, or the picture of another format (a.webp) that is there instead.
//
// And the lines of pages, PAGE-XML and ALTO files (engine/page/page_file.h) at any depth; each is
// called by its page and its id, "book/0001.xml:l17". The image of a page is no line. What cannot
// be read of a page, or of one of its lines, is listed with the problem; so is a line that another
// file, or another place in it, describes as well (page_images.h).
std::vector<ListedUtterance> list_lines(const std::string& folder, FileChoice* choice = nullptr);

// LibriSpeech: SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt, "SPEAKER-CHAPTER-0001 TEXT" for each
// SPEAKER-CHAPTER-0001.flac beside it. Below folders called train…, dev… or test… these are the
// splits.
std::vector<ListedUtterance> list_librispeech(const std::string& folder);

// Kaldi: wav.scp, text, and if they are there segments and utt2spk. Recordings that are the output
// of commands are refused. A relative path is seen from the working directory, as by Kaldi. With
// `features`, or where there is no wav.scp, feats.scp says where the utterances' matrices are.
std::vector<ListedUtterance> list_kaldi(const std::string& folder, bool features = false);

// Manifests of NeMo: a JSON object per line with audio_filepath, text (or the one member that has
// another usual name) and, if known, offset, duration, speaker, channel. Relative paths are seen
// from the manifest's folder. The splits are as of deep_speech().
std::vector<ListedUtterance> list_nemo(const std::vector<std::string>& manifests);
// What one of its lines says. Throws InputError: a clause without the place.
ListedUtterance nemo_entry(std::string_view line, const std::string& folder);

// Tar archives that are not compressed, each recording with its text beside it, as a.wav and a.txt
// or a.json (with "text" and, if it is known, "speaker"). A folder stands for the .tar files in it.
// The splits are as of deep_speech(), or what folders inside the folder are called.
std::vector<ListedUtterance> list_tar(const std::vector<std::string>& archives);

// A table with a row per recording.
struct TableLayout {
  // Files for each split; those of "" say none.
  struct File {
    std::string path, split;
  };
  std::vector<File> files;
  // 0: the one of comma, tab, semicolon and bar by which the first line has the columns that are
  // wanted; it may also say so itself ("sep=;").
  char delimiter = ',';
  bool quotes = true;  // how, the table shows (csv.h)
  // Names of columns in the first line or, with `header` false, their numbers from 0. A list of
  // several counts from its end: the first that is not empty. `speaker` may be empty: none. Another
  // name that is empty: the column with a usual one; InputError that tells the columns where there
  // is none, or several.
  bool header = true;
  std::string audio;
  std::vector<std::string> text;
  std::string speaker;
  std::string folder;  // that paths are relative to
  std::string ending;  // added to what the audio column says: ".wav"
};
// *chosen: lines that say which columns were chosen by their usual names; nullptr: not wanted.
std::vector<ListedUtterance> list_table(const TableLayout& layout, std::string* chosen = nullptr);

// Layouts of well-known data sets in a folder. Common Voice: train.tsv, dev.tsv, test.tsv, clips/.
// LJSpeech: metadata.csv, wavs/. DeepSpeech and Coqui: CSV files, which may be named train=, dev=,
// test=; else their names tell the split ("train.csv", "clips-dev.csv").
TableLayout common_voice(const std::string& folder);
TableLayout lj_speech(const std::string& folder);
TableLayout deep_speech(const std::vector<std::string>& files);
std::vector<TableLayout::File> files_with_splits(const std::vector<std::string>& files);

}  // namespace rondo::corpus
