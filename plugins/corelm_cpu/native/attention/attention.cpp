#include "attention/attention.h"

#include <math.h>

#include <algorithm>

struct Attention::Step {
    const uint8_t* cache;
    const Batch& batch;
    int64_t window;
    const uint8_t* queries;
    uint8_t* output;
    int64_t cost;
};

namespace {

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Of a chunk's keys and values in bfloat16, for one KV head.
size_t expanded_bytes(const Shape& shape) {
    return size_t(std::max(CHUNK_TOKENS, shape.slots())) * shape.head_dim * 2 * sizeof(uint16_t) + PADDING;
}

}  // namespace

Attention::Attention(const AttentionKernels& kernels, const Shape& shape, Threads& threads)
    : kernels_(kernels),
      shape_(shape),
      threads_(threads),
      tile_queries_(std::max(TILE_ROWS / shape.group(), 1)),
      rows_(int(round_up(tile_queries_ * shape.group(), MAX_LANES))),
      scores_stride_(round_up(std::max(CHUNK_TOKENS, shape.slots()), MAX_LANES) + 2 * MAX_LANES),
      weights_stride_(scores_stride_ * number_bytes(shape.kind)),
      acc_stride_(round_up(shape.head_dim, MAX_LANES)),
      buffers_(threads.count()),
      heads_(threads.count()),
      tails_(threads.count()) {
    for (Buffers& buffers : buffers_) {
        buffers.scores.resize(rows_ * scores_stride_);
        buffers.weights.resize(rows_ * weights_stride_);
        buffers.acc.resize(PLACES * rows_ * acc_stride_);
        buffers.sums.resize(PLACES * 2 * rows_);
        if (!shape.coded()) continue;
        buffers.value_scales.resize(scores_stride_);
        buffers.queries.resize(rows_ * acc_stride_);
        buffers.query_scales.resize(rows_);
        buffers.query_sums.resize(rows_);
        buffers.expanded.resize(expanded_bytes(shape));
    }
}

State Attention::state(int thread, Place place) {
    float* sums = buffers_[thread].sums.data() + size_t(place) * 2 * rows_;
    return {buffers_[thread].acc.data() + place * rows_ * acc_stride_, sums, sums + rows_};
}

void Attention::write(void* cache, int64_t tokens, const int64_t* slots, const uint8_t* k, const uint8_t* v) {
    uint8_t* blocks = static_cast<uint8_t*>(cache);
    // Neighbours that share a pair of slots are written by one thread.
    const auto boundary = [&](int part) {
        int64_t i = tokens * part / threads_.count();
        while (i > 0 && i < tokens && slots[i] == slots[i - 1] + 1) {
            if (slots[i] % shape_.block_size % 2 == 0) break;
            i++;
        }
        return i;
    };
    threads_.each(threads_.count(), [&](int thread) {
        const int64_t from = boundary(thread), to = boundary(thread + 1);
        const size_t offset = size_t(from) * shape_.kv_heads * shape_.head_dim * number_bytes(shape_.kind);
        if (from < to) kernels_.write(shape_, blocks, to - from, slots + from, k + offset, v + offset);
    });
}

void Attention::attend(const void* cache, const Batch& batch, int64_t window, const uint8_t* queries,
                       uint8_t* output) {
    Step step{static_cast<const uint8_t*>(cache), batch, window, queries, output, 0};
    each_tile(step, [&](const Tile&, int64_t cost) { step.cost += cost; });
    threads_.each(threads_.count(), [&](int thread) { compute_share(step, thread); });
    join_parts();
}

// Visit every tile with its cost, the rows of all its blocks.
template <class Visit>
void Attention::each_tile(const Step& step, Visit visit) const {
    const int group = shape_.group(), d = shape_.head_dim, block_size = shape_.block_size;
    int64_t row = 0;
    for (int64_t s = 0; s < step.batch.slices; s++) {
        const int64_t length = step.batch.lengths[s];
        for (int64_t i = 0; i < length; i += tile_queries_) {
            const int count = int(std::min<int64_t>(tile_queries_, length - i));
            const int64_t position = step.batch.starts[s] + i;
            const int seen = int(std::max<int64_t>(position + 1 - step.window, 0) / block_size);
            // Chunks at fixed places, whichever query a tile begins with.
            const int first = shape_.exact() ? seen / chunk_blocks(shape_) * chunk_blocks(shape_) : seen;
            const int last = int((position + count - 1) / block_size + 1);
            for (int head = 0; head < shape_.kv_heads; head++) {
                const size_t number = (size_t(row + i) * shape_.heads + size_t(head) * group) * d;
                const size_t offset = number * number_bytes(shape_.kind);
                const uint8_t* region = step.cache + head * shape_.region();
                const int64_t* table = step.batch.tables + s * step.batch.width;
                const Tile tile{region,   shape_.block(), table, step.queries + offset, step.output + offset,
                                position, step.window,    count, first,                 last};
                visit(tile, int64_t(last - first) * count * group);
            }
        }
        row += length;
    }
}

// Every thread gets an equal share of the cost, cut between blocks, or between tiles if a sum may have but one order.
void Attention::compute_share(const Step& step, int thread) {
    const int64_t from = step.cost * thread / threads_.count(), to = step.cost * (thread + 1) / threads_.count();
    const float scale = 1.44269504f / sqrtf(float(shape_.head_dim));  // weights are powers of two
    Buffers& buffers = buffers_[thread];
    const Scratch scratch{buffers.scores.data(),     buffers.weights.data(),      buffers.value_scales.data(),
                          buffers.queries.data(),    buffers.query_scales.data(), buffers.query_sums.data(),
                          buffers.expanded.data(),   scores_stride_,              weights_stride_,
                          acc_stride_};
    heads_[thread].used = tails_[thread].used = false;
    int64_t done = 0;
    each_tile(step, [&](Tile tile, int64_t cost) {
        const int64_t start = done;
        done += cost;
        if (done <= from || start >= to) return;
        if (shape_.exact() && start < from) return;
        const int64_t rows = int64_t(tile.count) * shape_.group();
        const int begin = tile.first + int((std::max(from, start) - start) / rows);
        const int end = shape_.exact() ? tile.last : tile.first + int((std::min(to, done) - start) / rows);
        if (begin == end) return;
        const bool begun_before = begin > tile.first, goes_on = end < tile.last;
        const Place place = begun_before ? HEAD : goes_on ? TAIL : WHOLE;
        tile.first = begin;
        tile.last = end;
        kernels_.attend(shape_, tile, scale, scratch, state(thread, place));
        if (place == WHOLE)
            kernels_.finish(shape_, tile, acc_stride_, state(thread, WHOLE));
        else
            (place == HEAD ? heads_ : tails_)[thread] = Part{tile, true, goes_on};
    });
}

void Attention::join_parts() {
    for (int thread = 0; thread < threads_.count(); thread++) {
        if (!tails_[thread].used) continue;
        const Tile& tile = tails_[thread].tile;
        const State whole = state(thread, TAIL);
        bool goes_on = true;
        for (int next = thread + 1; goes_on && next < threads_.count(); next++) {
            if (!heads_[next].used) continue;
            kernels_.merge(tile.count * shape_.group(), shape_.head_dim, acc_stride_, whole, state(next, HEAD));
            goes_on = heads_[next].goes_on;
        }
        kernels_.finish(shape_, tile, acc_stride_, whole);
    }
}
