// Attention of one query token a row over its keys and values in a paged cache, grouped-query, with online softmax.
//
// A block works on one row and one key/value head, for the GROUP query heads that share it: each key and value is read
// once. Lanes form teams of HEAD_DIM / 8, one 16-byte vector a lane; a team takes every kTeams-th token and keeps its own
// running maximum, sum and weighted values, so nothing is exchanged between teams until all keys are read. The teams are
// then merged in a fixed order: by shuffles inside a warp, through shared memory between warps. No atomics: the same
// input gives the same bits, and a row's result does not depend on the other rows.
//
// HEAD_DIM (16, 32, 64, 128 or 256), GROUP and BLOCK_SIZE are set by the compiler's command line.
//
// query (rows, kv_heads * GROUP, HEAD_DIM) bf16, rows query_stride apart; key_cache, value_cache (blocks, BLOCK_SIZE,
// kv_heads, HEAD_DIM) bf16; block_table (rows, table_width) int32, rows table_stride apart; seq_lens (rows,) int32;
// out (rows, kv_heads * GROUP, HEAD_DIM) bf16, contiguous. A row of length 0 (padding) gives zeros.
#include "bf16.cuh"

static_assert(HEAD_DIM >= 16 && HEAD_DIM <= 256 && (HEAD_DIM & (HEAD_DIM - 1)) == 0, "a team is 2 to 32 lanes");

constexpr int kTeam = HEAD_DIM / 8;               // lanes that share a token
constexpr int kTeamsPerWarp = kWarp / kTeam;
constexpr int kWarps = 4;
constexpr int kTeams = kWarps * kTeamsPerWarp;
constexpr int kUnroll = 4;                        // tokens whose loads a team has in flight
constexpr float kLowest = -1e30f;                 // stands for minus infinity; finite, so lowest - lowest is not NaN
constexpr float kLog2E = 1.4426950408889634f;

struct Softmax {
    float max = kLowest;                          // of the scores so far, in units of log2
    float sum = 0.0f;                             // of exp2(score - max)
    float values[8] = {};                         // weighted by exp2(score - max)

    __device__ void rescale(float new_max) {
        const float scale = exp2f(max - new_max);
        max = new_max;
        sum *= scale;
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] *= scale;
    }
};

extern "C" __global__ void __launch_bounds__(kWarps* kWarp)
    paged_attention_decode(bf16* out, const bf16* query, const bf16* key_cache, const bf16* value_cache,
                           const int* block_table, const int* seq_lens, i64 query_stride, i64 table_stride,
                           i64 table_width, float scale) {
    const int kv_head = blockIdx.x, kv_heads = gridDim.x;
    const i64 row = blockIdx.y;
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const int team = lane / kTeam, dim = lane % kTeam * 8;
    const int* blocks = block_table + row * table_stride;
    bf16* out_heads = out + (row * kv_heads + kv_head) * (GROUP * HEAD_DIM);

    // Never past the end of the table, whatever a stale seq_lens says.
    const int length = min(i64(seq_lens[row]), table_width * BLOCK_SIZE);
    if (length <= 0) {
        const Bf16x8 zeros = {};
        for (int i = threadIdx.x; i < GROUP * kTeam; i += kWarps * kWarp) store8(out_heads + i * 8, zeros);
        return;
    }

    float q[GROUP][8];
#pragma unroll
    for (int head = 0; head < GROUP; ++head) {
        unpack(load8(query + row * query_stride + (kv_head * GROUP + head) * HEAD_DIM + dim), q[head]);
#pragma unroll
        for (int i = 0; i < 8; ++i) q[head][i] *= scale * kLog2E;
    }

    Softmax state[GROUP];
    // The bound is the same for all lanes of a warp: shuffles need them all.
    for (int base = warp * kTeamsPerWarp; base < length; base += kUnroll * kTeams) {
        Bf16x8 keys[kUnroll], values[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int token = min(base + team + u * kTeams, length - 1);  // past the end: a legal address, masked below
            const i64 slot = i64(blocks[token / BLOCK_SIZE]) * BLOCK_SIZE + token % BLOCK_SIZE;
            const i64 at = (slot * kv_heads + kv_head) * HEAD_DIM + dim;
            keys[u] = load8(key_cache + at);
            values[u] = load8(value_cache + at);
        }

        float scores[kUnroll][GROUP];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const bool exists = base + team + u * kTeams < length;
            float key[8];
            unpack(keys[u], key);
#pragma unroll
            for (int head = 0; head < GROUP; ++head) {
                float score = 0.0f;
#pragma unroll
                for (int i = 0; i < 8; ++i) score += q[head][i] * key[i];
#pragma unroll
                for (int offset = kTeam / 2; offset > 0; offset /= 2)
                    score += __shfl_xor_sync(kAllLanes, score, offset);
                scores[u][head] = exists ? score : kLowest;
            }
        }

#pragma unroll
        for (int head = 0; head < GROUP; ++head) {
            float new_max = state[head].max;
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) new_max = fmaxf(new_max, scores[u][head]);
            state[head].rescale(new_max);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            float value[8];
            unpack(values[u], value);
#pragma unroll
            for (int head = 0; head < GROUP; ++head) {
                const float weight = exp2f(scores[u][head] - state[head].max);
                state[head].sum += weight;
#pragma unroll
                for (int i = 0; i < 8; ++i) state[head].values[i] += weight * value[i];
            }
        }
    }

    __shared__ float maxima[kWarps][GROUP], sums[kWarps][GROUP], weighted[kWarps][GROUP][HEAD_DIM];
#pragma unroll
    for (int head = 0; head < GROUP; ++head) {
        Softmax& mine = state[head];
#pragma unroll
        for (int offset = kTeam; offset < kWarp; offset *= 2) {
            mine.rescale(fmaxf(mine.max, __shfl_xor_sync(kAllLanes, mine.max, offset)));
            mine.sum += __shfl_xor_sync(kAllLanes, mine.sum, offset);
#pragma unroll
            for (int i = 0; i < 8; ++i) mine.values[i] += __shfl_xor_sync(kAllLanes, mine.values[i], offset);
        }
        if (team == 0) {
            maxima[warp][head] = mine.max;
            sums[warp][head] = mine.sum;
#pragma unroll
            for (int i = 0; i < 8; ++i) weighted[warp][head][dim + i] = mine.values[i];
        }
    }
    __syncthreads();

    for (int i = threadIdx.x; i < GROUP * kTeam; i += kWarps * kWarp) {
        const int head = i / kTeam, first = i % kTeam * 8;
        float max = maxima[0][head];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) max = fmaxf(max, maxima[w][head]);
        float sum = 0.0f, result[8] = {};
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            const float weight = exp2f(maxima[w][head] - max);
            sum += weight * sums[w][head];
#pragma unroll
            for (int j = 0; j < 8; ++j) result[j] += weight * weighted[w][head][first + j];
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) result[j] /= sum;
        store8(out_heads + i * 8, pack(result));
    }
}
