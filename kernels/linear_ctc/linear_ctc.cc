// The driver that the variants share: logits are made a tile at a time, and used at once.
#include "kernels/linear_ctc/linear_ctc.h"

#include <algorithm>

#include "kernels/base/carver.h"
#include "kernels/base/check_view.h"
#include "kernels/base/dispatch.h"
#include "kernels/cast/cast.h"
#include "kernels/ctc/ctc.h"
#include "kernels/ctc/ctc_impl.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear_ctc/linear_ctc_impl.h"
#include "kernels/reduce/reduce.h"

namespace rondo {
namespace {

struct TileShape {
  int64_t rows, classes;
};

// A CPU's tile stays in a cache that its threads share; a GPU's, of all rows, is enough work for
// all of it. (In the simulator so few classes that tests see several tiles.) It depends on the
// shape alone, and with it the order of the sums.
TileShape tile_shape(const Context& context, int64_t rows, int64_t classes) {
  TileShape t{std::max<int64_t>(rows, 1), 48};
  if (context.backend == Backend::cpu) {
    t = {std::min<int64_t>(t.rows, 512), 1024};
  } else if (context.backend == Backend::cuda) {
    t.classes = std::clamp<int64_t>((int64_t{16} << 20) / t.rows / 128 * 128, 128, 8192);
  }
  t.classes = std::min(t.classes, classes);
  return t;
}

struct Shape {
  PackedCapacity capacity;
  DType dtype;
  int64_t hidden, classes;
  int32_t max_label_length;
};

Shape shape_of(const LinearCtc& a) {
  return {a.layout.capacity, a.x.dtype, a.x.dim(1), a.w.dim(0), a.max_label_length};
}

GemmArgs logits_product(const Shape& s, TileShape t) {
  GemmArgs g;
  g.m = t.rows, g.n = t.classes, g.k = s.hidden;
  g.transpose_b = true;
  g.lda = g.ldb = s.hidden, g.ldc = t.classes;
  g.dtype = s.dtype;
  g.spare_rows = true;
  return g;
}

GemmArgs dx_product(const Shape& s, TileShape t) {
  GemmArgs g;
  g.m = t.rows, g.n = s.hidden, g.k = t.classes;
  g.lda = t.classes, g.ldb = g.ldc = s.hidden;
  g.dtype = s.dtype;
  g.spare_rows = true;
  return g;
}

GemmArgs dw_product(const Shape& s, TileShape t) {
  GemmArgs g;
  g.m = t.classes, g.n = s.hidden, g.k = t.rows;
  g.transpose_a = true;
  g.lda = t.classes, g.ldb = g.ldc = s.hidden;
  g.dtype = s.dtype;
  g.beta = 1;
  g.spare_rows = true;
  return g;
}

struct Space {
  LinearCtcRows rows;
  float* logits;
  void* gradient;    // of a tile; of f32 it is `logits`
  float* dx;         // of a tile's rows, where dx is not f32
  TensorView inner;  // of the ops that are called
};

Space carve(Carver& carver, const Context& context, const Shape& s, TileShape t) {
  const int64_t sequences = s.capacity.sequences;
  Space p;
  p.rows.columns = int64_t{s.max_label_length} + 1;
  carver.take(p.rows.classes, sequences * p.rows.columns);
  carver.take(p.rows.places, std::max<int64_t>(sequences * s.max_label_length, 1));
  carver.take(p.rows.highest, s.capacity.rows);
  carver.take(p.rows.total, s.capacity.rows);
  carver.take(p.logits, t.rows * t.classes);
  p.gradient = p.logits;
  p.dx = nullptr;
  if (s.dtype != DType::f32) {
    p.gradient = carver.take(static_cast<size_t>(t.rows * t.classes) * size_of(s.dtype));
    carver.take(p.dx, t.rows * s.hidden);
  }
  size_t bytes = ctc_workspace_bytes(context, s.capacity, DType::f32, p.rows.columns,
                                     s.max_label_length, true);
  for (int64_t classes : {t.classes, s.classes % t.classes}) {
    if (classes == 0) continue;
    const TileShape tile{t.rows, classes};
    for (const GemmArgs& g : {logits_product(s, tile), dx_product(s, tile), dw_product(s, tile)}) {
      bytes = std::max(bytes, gemm_workspace_bytes(context, g));
    }
    bytes = std::max(bytes, reduce_rows_workspace_bytes(context, t.rows, classes));
  }
  p.inner = {carver.take(bytes), DType::u8, {static_cast<int64_t>(bytes)}};
  return p;
}

// Rows of a matrix from `row` on.
void* at_row(const TensorView& v, int64_t row) {
  return static_cast<char*>(v.data) + static_cast<size_t>(row * v.dim(1)) * size_of(v.dtype);
}

TensorView part_of(const TensorView& v, int64_t first, int64_t count) {
  if (!v) return {};
  return {
      static_cast<char*>(v.data) + static_cast<size_t>(first) * size_of(v.dtype), v.dtype, {count}};
}

class Call {
 public:
  Call(const LinearCtcDevice& device, const Context& context, const LinearCtc& a)
      : context_(context),
        a_(a),
        shape_(shape_of(a)),
        tile_(tile_shape(context, a.layout.capacity.rows, a.w.dim(0))) {
    Carver carver(a.workspace.data);
    space_ = carve(carver, context, shape_, tile_);
    RONDO_CHECK(a.workspace && a.workspace.bytes() >= carver.used(), "linear_ctc: workspace of ",
                a.workspace ? a.workspace.bytes() : 0, " bytes, needed ", carver.used());
    space_.rows.layout = a.layout;
    space_.rows.labels = a.labels;
    space_.rows.label_offsets = a.label_offsets;
    space_.rows.blank = a.blank;
    space_.rows.label_grad = a.label_grad.as<float>();
    space_.rows.normalizer = a.normalizer.as<float>();
    if (a.layout.capacity.sequences > 0) device.columns(context, space_.rows);
  }

  const Space& space() const { return space_; }

  // CPUs see how many rows there are, and take blocks of them; on GPUs one block is all.
  template <class F>
  void for_row_blocks(F use) const {
    const bool host = context_.backend == Backend::cpu;
    const int64_t rows = host ? a_.layout.extent->rows : a_.layout.capacity.rows;
    for (int64_t first = 0; first < rows; first += tile_.rows) {
      use(first, std::min(tile_.rows, rows - first));
    }
  }

  // use(tile) with the logits of all classes for a block of rows.
  template <class F>
  void for_tiles(int64_t first_row, int64_t rows, F use) const {
    for (int64_t first = 0; first < shape_.classes; first += tile_.classes) {
      LinearCtcTile t;
      t.logits = space_.logits;
      t.gradient = space_.gradient;
      t.dtype = shape_.dtype;
      t.first_row = first_row, t.rows = rows;
      t.first_class = first, t.classes = std::min(tile_.classes, shape_.classes - first);
      GemmArgs g = logits_product(shape_, {t.rows, t.classes});
      g.a = at_row(a_.x, first_row);
      g.b = at_row(a_.w, first);
      g.c = t.logits;
      g.bias = part_of(a_.bias, first, t.classes);
      run_product(g);
      use(t);
    }
  }

  void add_dx(const LinearCtcTile& t, float* dx) const {
    GemmArgs g = dx_product(shape_, {t.rows, t.classes});
    g.a = t.gradient;
    g.b = at_row(a_.w, t.first_class);
    g.c = dx;
    g.beta = t.first_class == 0 ? 0 : 1;
    run_product(g);
  }

  void add_dw(const LinearCtcTile& t, const TensorView& dw) const {
    GemmArgs g = dw_product(shape_, {t.rows, t.classes});
    g.a = t.gradient;
    g.b = at_row(a_.x, t.first_row);
    g.c = at_row(dw, t.first_class);
    run_product(g);
  }

  void add_dbias(const LinearCtcTile& t, const TensorView& dbias) const {
    ReduceRowsArgs r;
    r.x = {t.gradient, t.dtype, {t.rows, t.classes}};
    r.y = part_of(dbias, t.first_class, t.classes);
    r.accumulate = true;
    r.row_count = row_count();
    r.workspace = space_.inner;
    rondo::run(context_, r);
  }

 private:
  const int32_t* row_count() const {
    return context_.backend == Backend::cpu ? nullptr : &a_.layout.extent->rows;
  }
  void run_product(GemmArgs& g) const {
    g.row_count = row_count();
    g.workspace = space_.inner;
    rondo::run(context_, g);
  }

  const Context& context_;
  const LinearCtc& a_;
  const Shape shape_;
  const TileShape tile_;
  Space space_;
};

void check(const char* op, const LinearCtc& a, DType wide) {
  RONDO_CHECK(a.x && a.w && a.x.rank == 2 && a.w.rank == 2, op, ": x and w are matrices");
  const int64_t rows = a.layout.capacity.rows, hidden = a.x.dim(1), classes = a.w.dim(0);
  RONDO_CHECK(classes >= 1 && hidden >= 1, op, ": ", classes, " classes of ", hidden, " columns");
  RONDO_CHECK(a.blank >= 0 && a.blank < classes, op, ": blank ", a.blank, " of ", classes);
  RONDO_CHECK(a.max_label_length >= 0 && a.max_label_length <= ctc_most_labels, op, ": ",
              a.max_label_length, " labels");
  check_matrix(op, "x", a.x, a.x.dtype, rows, hidden);
  check_matrix(op, "w", a.w, a.x.dtype, classes, hidden);
  if (a.bias) check_elements(op, "bias", a.bias, classes);
  check_elements(op, "label_grad", a.label_grad, rows * (int64_t{a.max_label_length} + 1));
  check_elements(op, "normalizer", a.normalizer, rows);
  for (const TensorView* v : {&a.bias, &a.label_grad, &a.normalizer}) {
    RONDO_CHECK(!*v || v->dtype == wide, op, ": ", name_of(v->dtype), " where ", name_of(wide),
                " is expected");
  }
}

void check_tables(const Context& context, const LinearCtc& a) {
  RONDO_CHECK(a.layout.capacity.sequences == 0 || a.label_offsets != nullptr,
              "linear_ctc: label_offsets are absent");
  check_ctc_labels(context, a.layout, a.labels, a.label_offsets, a.max_label_length, a.w.dim(0),
                   a.blank);
}

DType wide_of(const TensorView& x) { return x.dtype == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

void check_linear_ctc(const LinearCtcArgs& a) {
  check(a.op, a, wide_of(a.x));
  check_elements(a.op, "loss", a.loss, a.layout.capacity.sequences);
}

void check_linear_ctc(const LinearCtcGradArgs& a) {
  check(a.op, a, wide_of(a.x));
  if (a.dx) check_like(a.op, "dx", a.dx, a.x);
  if (a.dw) check_matrix(a.op, "dw", a.dw, wide_of(a.x), a.w.dim(0), a.w.dim(1));
  if (a.dbias) check_elements(a.op, "dbias", a.dbias, a.w.dim(0));
}

void linear_ctc_with(const LinearCtcDevice& device, const Context& context,
                     const LinearCtcArgs& a) {
  check_linear_ctc(a);
  check_tables(context, a);
  const Call call(device, context, a);
  const LinearCtcRows& rows = call.space().rows;
  const bool any = a.layout.capacity.rows > 0;
  call.for_row_blocks([&](int64_t first, int64_t count) {
    call.for_tiles(first, count,
                   [&](const LinearCtcTile& t) { device.statistics(context, rows, t); });
  });
  if (any) device.normalize(context, rows);
  CtcArgs c;
  c.layout = a.layout;
  c.logits =
      c.grad = {a.label_grad.data, a.label_grad.dtype, {a.layout.capacity.rows, rows.columns}};
  c.labels = rows.places;
  c.label_offsets = a.label_offsets;
  c.max_label_length = a.max_label_length;
  c.input = CtcInput::log_softmax;
  c.zero_infinity = a.zero_infinity;
  c.loss = a.loss;
  c.workspace = call.space().inner;
  rondo::run(context, c);
  if (any) device.settle(context, rows);
}

void linear_ctc_with(const LinearCtcDevice& device, const Context& context,
                     const LinearCtcGradArgs& a) {
  check_linear_ctc(a);
  check_tables(context, a);
  const Call call(device, context, a);
  const Space& space = call.space();
  call.for_row_blocks([&](int64_t first, int64_t count) {
    float* dx = space.dx;
    if (a.dx && a.dx.dtype == DType::f32) dx = static_cast<float*>(at_row(a.dx, first));
    call.for_tiles(first, count, [&](const LinearCtcTile& t) {
      device.gradient(context, space.rows, t);
      if (a.dx) call.add_dx(t, dx);
      if (a.dw) call.add_dw(t, a.dw);
      if (a.dbias) call.add_dbias(t, a.dbias);
    });
    if (!a.dx || a.dx.dtype == DType::f32) return;
    CastArgs cast;
    cast.x = {dx, DType::f32, {count, a.dx.dim(1)}};
    cast.y = {at_row(a.dx, first), a.dx.dtype, {count, a.dx.dim(1)}};
    rondo::run(context, cast);
  });
}

size_t linear_ctc_workspace_bytes(const Context& context, const PackedCapacity& capacity,
                                  DType dtype, int64_t hidden, int64_t classes,
                                  int32_t max_label_length) {
  if (context.backend == Backend::ref) return 0;
  Carver carver(nullptr);
  carve(carver, context, {capacity, dtype, hidden, classes, max_label_length},
        tile_shape(context, capacity.rows, classes));
  return carver.used();
}

std::span<const Variant> linear_ctc_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(LinearCtcArgs, linear_ctc),
      RONDO_GPU_VARIANTS(LinearCtcArgs, linear_ctc_gpu, "portable", Role::standard,
                         takes_narrow<&LinearCtcArgs::x>)};
  return variants;
}

std::span<const Variant> linear_ctc_grad_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(LinearCtcGradArgs, linear_ctc_grad),
      RONDO_GPU_VARIANTS(LinearCtcGradArgs, linear_ctc_grad_gpu, "portable", Role::standard,
                         takes_narrow<&LinearCtcGradArgs::x>)};
  return variants;
}

}  // namespace rondo
