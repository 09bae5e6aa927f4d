#include "linear/linear.h"

#include <math.h>

#include <algorithm>

namespace {

constexpr int PARTS = 4;  // for each thread, so that one that is held up leaves the rest to the others

size_t panels(int rows) { return size_t(rows + PANEL - 1) / PANEL; }

}  // namespace

ActivationBuffer::ActivationBuffer(const LinearKernels& kernels, int rows, int inputs, size_t number_bytes)
    : kernels_(kernels),
      codes_(panels(rows) * PANEL * groups_of(inputs) * INPUTS * number_bytes),
      scales_(panels(rows) * PANEL * groups_of(inputs)),
      sums_(scales_.size()) {}

Activations ActivationBuffer::view(const Matrix& matrix, int rows) {
    const Form form = kernels_.choose_form(matrix.kind, rows);
    return {groups_of(matrix.inputs), form, codes_.data(), scales_.data(), sums_.data()};
}

Linear::Linear(const LinearKernels& kernels, Threads& threads, int most_inputs)
    : kernels_(kernels), threads_(threads), scratch_(threads.count() * PARTS) {
    const size_t unpacked = sizeof(uint16_t) * OUTPUTS * INPUTS * groups_of(most_inputs);
    for (Scratch& scratch : scratch_) {
        scratch.products.resize(ROWS * OUTPUTS);
        scratch.tile.resize(unpacked);
    }
}

int Linear::parts(int tiles) const { return std::min<int>(tiles, int(scratch_.size())); }

void Linear::multiply_tiles(const Matrix& matrix, const Activations& x, int rows, const Target& target, int part,
                            int parts) {
    const int tiles = tiles_of(matrix.outputs), from = tiles * part / parts, to = tiles * (part + 1) / parts;
    const size_t size = tile_bytes(matrix.kind, matrix.inputs);
    Scratch& scratch = scratch_[part];
    for (int first = 0; first < rows; first += ROWS) {
        const int count = std::min(ROWS, rows - first);
        for (int tile = from; tile < to; tile++) {
            kernels_.multiply(matrix.kind, matrix.tiles + tile * size, x, first, count, scratch.products.data(),
                              scratch.tile.data());
            kernels_.finish(target, tile, first, count, scratch.products.data());
        }
    }
}

void Linear::multiply(const Matrix& matrix, const Activations& x, int rows, const Target& target) {
    const int parts = this->parts(tiles_of(matrix.outputs));
    threads_.each(parts, [&](int part) { multiply_tiles(matrix, x, rows, target, part, parts); });
}

void Linear::find_best(const Matrix& matrix, const Activations& x, int rows, float* const* logits, int64_t* best) {
    const int parts = this->parts(tiles_of(matrix.outputs));
    best_.assign(size_t(parts) * rows, -INFINITY);
    best_at_.assign(size_t(parts) * rows, -1);
    threads_.each(parts, [&](int part) {
        const size_t offset = size_t(part) * rows;
        const Target target{Target::BEST,        nullptr, 0, matrix.outputs, matrix.bias, best_.data() + offset,
                            best_at_.data() + offset, logits};
        multiply_tiles(matrix, x, rows, target, part, parts);
    });
    for (int row = 0; row < rows; row++) {
        float most = -INFINITY;
        best[row] = -1;
        for (int part = 0; part < parts; part++) {
            const size_t at = size_t(part) * rows + row;
            if (best_[at] != best_[at]) {
                best[row] = -1;
                break;
            }
            if (best_[at] > most) {
                most = best_[at];
                best[row] = best_at_[at];
            }
        }
    }
}
