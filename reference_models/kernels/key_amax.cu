// out[row] = the largest |key| of each channel among the first seq_lens[row] tokens: what keys would be quantised by.
//
// A context is cut into stretches of SPLIT tokens, a block each: blockIdx.x is the stretch, blockIdx.y the row. Blocks
// meet in an atomic maximum, whose result does not hang on their order. With STRIDED a block goes on with the stretch
// that lies gridDim.x further, so any number of blocks does; without, there have to be enough for the longest context.
//
// key_cache (blocks, BLOCK_SIZE, width) bf16, width a multiple of 8; block_table (rows, table_width) int32, rows
// table_stride apart; seq_lens (rows,) int32; out (rows, width) float, zeros before.
#include "bf16.cuh"

extern "C" __global__ void key_amax(float* out, const bf16* key_cache, const int* block_table, const int* seq_lens,
                                    i64 width, i64 table_stride, i64 table_width) {
    const i64 row = blockIdx.y;
    const int* blocks = block_table + row * table_stride;
    const i64 length = min(i64(seq_lens[row]), table_width * BLOCK_SIZE);
    const i64 step = STRIDED ? i64(gridDim.x) * SPLIT : length;

    for (i64 channel = threadIdx.x * 8; channel < width; channel += blockDim.x * 8) {
        float largest[8] = {};
        for (i64 start = i64(blockIdx.x) * SPLIT; start < length; start += step) {
            for (i64 token = start; token < min(start + SPLIT, length); ++token) {
                const i64 slot = i64(blocks[token / BLOCK_SIZE]) * BLOCK_SIZE + token % BLOCK_SIZE;
                float numbers[8];
                unpack(load8(key_cache + slot * width + channel), numbers);
#pragma unroll
                for (int i = 0; i < 8; ++i) largest[i] = fmaxf(largest[i], fabsf(numbers[i]));
            }
        }
        // Floats that are not negative are in the order of their bits.
        for (int i = 0; i < 8; ++i)
            atomicMax(reinterpret_cast<int*>(out + row * width + channel + i), __float_as_int(largest[i]));
    }
}
