// Rotates query and key heads by their token's position, in place. Halves are paired (i, i + HEAD_DIM / 2), as in LLaMA.
//
// One block a row; a thread rotates eight pairs. HEAD_DIM is set by the compiler's command line.
//
// qk (rows, heads, HEAD_DIM) bf16, rows row_stride apart; positions (rows,) int64; cos_sin (positions, HEAD_DIM) float,
// cosines in the first half of a row and sines in the second. `offset` is added to every position.
#include "bf16.cuh"

static_assert(HEAD_DIM % 16 == 0, "a thread takes 8 dimensions of each half");

struct alignas(16) Float8 {
    float numbers[8];
};

extern "C" __global__ void rotary_embedding(bf16* qk, const i64* positions, const float* cos_sin, i64 heads,
                                            i64 row_stride, i64 offset) {
    constexpr int kHalf = HEAD_DIM / 2;
    constexpr int kThreadsPerHead = kHalf / 8;
    const float* angles = cos_sin + (positions[blockIdx.x] + offset) * HEAD_DIM;

    for (int i = threadIdx.x; i < heads * kThreadsPerHead; i += blockDim.x) {
        const int dim = i % kThreadsPerHead * 8;
        bf16* at = qk + blockIdx.x * row_stride + i / kThreadsPerHead * HEAD_DIM + dim;
        const Float8 cosines = *reinterpret_cast<const Float8*>(angles + dim);
        const Float8 sines = *reinterpret_cast<const Float8*>(angles + dim + kHalf);

        float first[8], second[8];
        unpack(load8(at), first);
        unpack(load8(at + kHalf), second);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float x = first[j], y = second[j];
            first[j] = x * cosines.numbers[j] - y * sines.numbers[j];
            second[j] = y * cosines.numbers[j] + x * sines.numbers[j];
        }
        store8(at, pack(first));
        store8(at + kHalf, pack(second));
    }
}
