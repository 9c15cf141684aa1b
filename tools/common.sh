# Shared by tools/test and tools/quickstart; source it from the repository's root.

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Packages for building, by the names that Debian 12 and 13 and Ubuntu 24.04 have in common; espeak-ng is for the demo corpus.
build_packages=(g++ make meson ninja-build pkg-config libsndfile1-dev libutf8proc-dev zlib1g-dev
  libpng-dev libjpeg-dev libtiff-dev libpugixml-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libwebsockets-dev
  python3 espeak-ng)
# And for testing: Gloo and MPI are other ways for ranks to talk, git for checks of the sources, openmpi-bin for ranks
# that mpirun starts, iproute2 for two machines in network namespaces, unicode-data and xmllint for what others define,
# python3-venv for the Python package.
test_packages=(libgloo-dev libopenmpi-dev catch2 git patch openmpi-bin iproute2 unicode-data libxml2-utils locales python3-venv)
# And for sanitizers: a clang that both have.
sanitizer_packages=(clang-19 libclang-rt-19-dev llvm-19)

# Installs what is missing, with sudo when not root. On systems without apt it only names the
# packages; the build then says what it lacks.
install_packages() {
  local missing=() p
  if ! command -v dpkg-query > /dev/null; then
    say "no dpkg here: make sure that you have the equivalents of: $*"
    return
  fi
  for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2> /dev/null | grep -q 'ok installed' || missing+=("$p")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo > /dev/null || die "as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq || die "apt-get update failed"
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" > /dev/null || die "could not install ${missing[*]}"
}

# The architectures of the machine's GPUs as Meson's gpu_arch wants them ("80,90a"), or nothing. Where there is a driver,
# one line says why nothing.
gpu_architectures() {
  local said capability found=() too_old=''
  command -v nvidia-smi > /dev/null || return 0
  said=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>&1) || true
  for capability in $(grep -xE ' *[0-9]+\.[0-9] *' <<< "$said" | sort -uV); do
    case "$capability" in
      [0-7].*) too_old=$capability ;;
      9.0) found+=(90a) ;;
      *) found+=("${capability/./}") ;;
    esac
  done
  if [ ${#found[@]} -gt 0 ]; then
    (IFS=,; echo "${found[*]}")
  elif [ -n "$too_old" ]; then
    say "without CUDA: the GPU has compute capability $too_old, 8.0 or newer is wanted"
  else
    say "without CUDA: nvidia-smi names no GPU ($(head -n 1 <<< "$said"))"
  fi
}

# configure DIR OPTION... : meson setup, anew where there is a build, for what was missing may have come. A line for each
# part that is optional and left out.
configure() {
  local dir=$1 part again=()
  shift
  [ ! -f "$dir/build.ninja" ] || again=(--reconfigure)
  meson setup "$dir" "${again[@]}" "$@" > "$dir.log" 2>&1 || {
    tail -n 20 "$dir.log" >&2
    die "meson setup $dir failed"
  }
  rm -f "$dir.log"
  if [ -f "$dir/left_out.txt" ]; then
    while read -r part; do
      [ -z "$part" ] || say "without $part"
    done < "$dir/left_out.txt"
  fi
}

# test_programs DIR SUITE... : what the tests of these suites run and read of the build, as ninja
# targets; Meson builds them by itself only before version 1.7.
test_programs() {
  meson introspect --tests --targets "$1" | python3 -c '
import json, os, sys
top, suites = os.path.abspath(sys.argv[1]), set(sys.argv[2:])
about = json.load(sys.stdin)
built = {file for target in about["targets"] for file in target["filename"]}
files = {target["id"]: target["filename"] for target in about["targets"]}
for test in about["tests"]:
    if suites & {s.split(":")[-1] for s in test["suite"]}:
        needed = [os.path.normpath(os.path.join(top, word)) for word in test["cmd"]]
        needed += [file for target in test["depends"] for file in files.get(target, [])]
        for file in needed:
            if file in built:
                print(os.path.relpath(file, top))
' "$@" | sort -u
}

# show_progress LOG : "[12/388]", from what ninja has written so far: on a terminal once a second in one line,
# elsewhere a line now and then.
show_progress() {
  local step shape='%s\n' pause=30
  if [ -t 2 ]; then
    shape='\r%s\033[K' pause=1
  fi
  # The sleep outlives its parent, and must not keep a pipe open that somebody reads to its end.
  while sleep "$pause" > /dev/null 2>&1; do
    step=$(grep -oE '^\[[0-9]+/[0-9]+\]' "$1" | tail -n 1)
    # shellcheck disable=SC2059
    printf "$shape" "$step" >&2
  done
}

# build DIR [TARGET...] : shows how far it is, and the compiler's words only when it fails.
build() {
  local log watcher status=0
  log=$(mktemp)
  show_progress "$log" &
  watcher=$!
  ninja -C "$@" > "$log" 2>&1 || status=$?
  kill "$watcher" 2> /dev/null || true
  wait "$watcher" 2> /dev/null || true
  [ ! -t 2 ] || printf '\r\033[K' >&2
  if [ "$status" -ne 0 ]; then
    grep -vE '^\[[0-9]+/[0-9]+\]' "$log" | tail -n 60 >&2 || true # ninja may say nothing
    rm -f "$log"
    die "building $1 failed"
  fi
  rm -f "$log"
}

# stage NAME : from here on the time is NAME's. stage_times tells all so far, "packages 31 s, building 190 s",
# and the time of processors, which does not depend on how many there are.
stages=() stage='' stage_start=0
stage() {
  [ -z "$stage" ] || stages+=("$stage $((SECONDS - stage_start)) s")
  stage=$1 stage_start=$SECONDS
}
stage_times() {
  local used IFS=,
  stage ''
  echo "${stages[*]}" | sed 's/,/, /g'
  used=$(mktemp)
  times > "$used" # not into a pipe: that is another shell, which has used nothing
  awk -F '[ms ]+' 'NR == 2 { printf "processor time: %.0f s, and %.0f s in the system\n", 60 * $1 + $2, 60 * $3 + $4 }' "$used"
  rm -f "$used"
}
