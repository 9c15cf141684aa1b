#include "tools/corpus/examination/division.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "kernels/base/error.h"
#include "tools/corpus/examination/list_passes.h"
#include "tools/corpus/lists/page_images.h"

namespace rondo::corpus {
namespace {

size_t share_of(double share, size_t all) {
  const auto wanted = static_cast<size_t>(std::llround(share * static_cast<double>(all)));
  return share > 0 && all >= 3 ? std::max<size_t>(wanted, 1) : wanted;
}

// Groups of utterances that belong together: those of a speaker, of a page, or each for itself.
using Members = std::vector<ListedUtterance*>;
using Groups = std::map<std::string, Members>;

void assign(const Members& members, const char* split) {
  for (ListedUtterance* u : members) u->split = split;
}

// Each utterance with a number; those of a group have the same, which is drawn by its name. Where
// each is a group for itself, this is far smaller than Groups.
using Draws = std::vector<std::pair<uint64_t, ListedUtterance*>>;

Draws draws_of(const Groups& groups, uint64_t seed) {
  Draws draws;
  for (const auto& [name, members] : groups)
    for (ListedUtterance* u : members) draws.emplace_back(draw(seed, name), u);
  return draws;
}

// Gives whole groups to test and dev until their shares are reached. Whether both got some, if they
// are wanted.
bool deal(Draws draws, const Shares& shares) {
  std::sort(draws.begin(), draws.end());
  const size_t all_test = share_of(shares.test, draws.size());
  const size_t all_dev = share_of(shares.dev, draws.size());
  size_t test = all_test, dev = all_dev, left = draws.size();
  for (size_t begin = 0, end = 0; begin < draws.size(); begin = end) {
    while (end < draws.size() && draws[end].first == draws[begin].first) ++end;
    const size_t members = end - begin;
    // A group that is much larger than what is still wanted stays to train on.
    const auto take = [&](size_t& wanted) {
      if (wanted == 0 || members > std::max<size_t>(2 * wanted, 1)) return false;
      // Without something to train on, the rest is of no use.
      if (members >= left) return false;
      left -= members;
      wanted -= std::min(wanted, members);
      return true;
    };
    const char* const split = take(test) ? "test" : take(dev) ? "dev" : "train";
    for (size_t i = begin; i < end; ++i) draws[i].second->split = split;
  }
  return (all_test == 0 || test < all_test) && (all_dev == 0 || dev < all_dev);
}

// Where few groups are far larger than the shares: the smallest of them to validate with and, of
// three or more, the next to test with. Whether there is anything but to train on.
bool deal_few(const Groups& groups, const Shares& shares) {
  std::vector<std::pair<std::pair<size_t, uint64_t>, const Members*>> order;
  for (const auto& [name, members] : groups)
    order.push_back({{members.size(), draw(shares.seed, name)}, &members});
  std::sort(order.begin(), order.end());
  size_t next = 0;
  for (const auto& [split, share] :
       {std::pair("dev", shares.dev), std::pair("test", shares.test)}) {
    if (share > 0 && next + 1 < order.size()) assign(*order[next++].second, split);
  }
  for (size_t i = next; i < order.size(); ++i) assign(*order[i].second, "train");
  return next > 0;
}

// How many characters of the paths name folders that all files are in.
size_t common_folder(const std::vector<ListedUtterance>& list) {
  std::string_view common = list.front().file.path;
  const auto shorten = [&] { common = common.substr(0, common.rfind('/') + 1); };
  shorten();
  for (const ListedUtterance& u : list) {
    while (!u.file.path.starts_with(common)) {
      common.remove_suffix(1);
      shorten();
    }
  }
  return common.size();
}

// Groups with members on one image become one, under the first of their names.
Groups joined_by_image(const Groups& groups,
                       const std::map<const ListedUtterance*, std::string>& images) {
  std::map<std::string, std::string> first_with;  // of an image, the group
  Groups joined;
  for (const auto& [name, members] : groups) {
    // Those that are joined through this one.
    std::set<std::string> met;
    for (const ListedUtterance* u : members) {
      const auto image = images.find(u);
      if (image == images.end()) continue;
      const auto [at, is_new] = first_with.try_emplace(image->second, name);
      if (!is_new) met.insert(at->second);
    }
    const std::string to = met.empty() ? name : std::min(name, *met.begin());
    Members& all = joined[to];
    all.insert(all.end(), members.begin(), members.end());
    for (const std::string& other : met) {
      if (other == to) continue;
      all.insert(all.end(), joined[other].begin(), joined[other].end());
      joined.erase(other);
    }
    if (met.empty()) continue;
    for (auto& [image, group] : first_with)
      if (group == name || met.contains(group)) group = to;
  }
  return joined;
}

std::string divided_as_given(std::vector<ListedUtterance>& list,
                             const std::vector<std::string>& images) {
  int64_t unsaid = 0;
  std::map<std::string, std::set<std::string>> parts_of_image;
  for (size_t i = 0; i < list.size(); ++i) {
    ListedUtterance& u = list[i];
    unsaid += u.split.empty();
    if (u.split.empty()) u.split = "train";
    if (!images[i].empty()) parts_of_image[images[i]].insert(u.split);
  }
  const auto in_two = std::count_if(parts_of_image.begin(), parts_of_image.end(),
                                    [](const auto& image) { return image.second.size() > 1; });
  std::string how = "as the data are divided";
  if (unsaid > 0) how += str("; ", unsaid, " of no part are to train on");
  if (in_two > 0)
    how += str("; ", in_two, in_two == 1 ? " image of a page has" : " images of pages have",
               " lines in two parts, so that error rates flatter");
  return how;
}

// What an utterance is drawn by: wherever the data lie, the draw is the same. `common`: how many
// characters of its path name folders that all are in.
std::string drawn_by(const ListedUtterance& u, size_t common) {
  FilePart file = u.file;
  file.path.erase(0, common);
  return str(u.id, " ", u.offset, " ", file.name());
}

// Each utterance for itself, but for those of a page.
Draws draws_of_each(std::vector<ListedUtterance>& list,
                    const std::map<const ListedUtterance*, std::string>& image_of, uint64_t seed) {
  const size_t common = common_folder(list);
  Draws draws;
  Groups pages;
  for (ListedUtterance& u : list) {
    if (image_of.contains(&u)) {
      pages["page " + u.page].push_back(&u);
    } else {
      draws.emplace_back(draw(seed, drawn_by(u, common)), &u);
    }
  }
  const Draws of_pages = draws_of(joined_by_image(pages, image_of), seed);
  draws.insert(draws.end(), of_pages.begin(), of_pages.end());
  return draws;
}

// Each class by itself: all are there to train on.
std::string divided_by_class(std::vector<ListedUtterance>& list, const Shares& shares) {
  std::map<std::string, Draws> classes;
  const size_t common = common_folder(list);
  for (ListedUtterance& u : list)
    classes[u.label].emplace_back(draw(shares.seed, drawn_by(u, common)), &u);
  for (auto& [name, draws] : classes) deal(std::move(draws), shares);
  return "by utterance within each class, drawn with the seed";
}

}  // namespace

const std::string& group_of(const ListedUtterance& u) {
  return u.kind == InputKind::image ? u.folder : u.speaker;
}

std::string divide(std::vector<ListedUtterance>& list, const Shares& shares) {
  const std::vector<std::string> images = images_of_pages(list);
  // A folder called train alone divides nothing.
  const auto is_kept_apart = [](const auto& u) { return !u.split.empty() && u.split != "train"; };
  if (std::any_of(list.begin(), list.end(), is_kept_apart)) return divided_as_given(list, images);
  if (!list.front().label.empty()) return divided_by_class(list, shares);
  Groups together, pages;
  std::map<const ListedUtterance*, std::string> image_of;
  bool known = true, pages_known = true;
  for (size_t i = 0; i < list.size(); ++i) {
    ListedUtterance& u = list[i];
    if (!images[i].empty()) image_of[&u] = images[i];
    known = known && !group_of(u).empty();
    pages_known = pages_known && !u.page.empty();
    together[group_of(u)].push_back(&u);
    pages[u.page].push_back(&u);
  }
  const bool any_page = !image_of.empty();
  if (any_page) {
    for (Groups* groups : {&together, &pages}) *groups = joined_by_image(*groups, image_of);
  }
  const bool are_images = list.front().kind == InputKind::image;
  constexpr size_t enough = 4;
  if (known && together.size() >= enough && deal(draws_of(together, shares.seed), shares))
    return are_images ? "by folder: none is in two parts" : "by speaker: nobody is in two parts";
  if (pages_known && pages.size() >= enough && deal(draws_of(pages, shares.seed), shares))
    return "by page: none is in two parts";
  const bool is_dealt = deal(draws_of_each(list, image_of, shares.seed), shares);
  if (pages_known) {
    if (is_dealt) return "by page: none is in two parts";
    if (!deal_few(pages, shares) && shares.dev + shares.test > 0)
      return str("not at all: no page is ever in two parts, and ",
                 pages.size() == 1 ? "1 page is all there is"
                                   : str(pages.size(), " pages are all there are"));
    return str("by page: none is in two parts (", pages.size(),
               " pages cannot make parts of exactly these shares)");
  }
  std::string how =
      are_images ? "by line, drawn with the seed" : "by utterance, drawn with the seed";
  if (any_page) how += "; no page is in two parts";
  if (!known) return how;
  const char* const group = are_images ? "folder" : "speaker";
  return str(how, " (not by ", group, ": ", together.size(), " ", group,
             together.size() == 1 ? "" : "s", " cannot make parts of these shares)");
}

}  // namespace rondo::corpus
